"""What voice pages of other projects offer, and the test that shows it here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SHOWN = {
    "conversation about anything": "test_page.py::test_the_page_invites_to_what_the_model_can_do",
    "centred welcome, one large start": "test_looks.py::test_a_welcome_is_centred_and_has_one_large_start",
    "visualiser of the answer's voice": "test_looks.py::test_who_wants_no_motion_sees_none",
    "visualiser of the user's voice": "test_looks.py::test_the_ring_of_the_orb_follows_the_users_voice",
    "live words of the user": "test_page.py::test_the_users_words_appear_while_they_speak",
    "words in step with the voice": "test_words_in_step.py::test_a_word_is_shown_when_it_is_heard",
    "heard and unheard words at a barge-in": "test_page.py::test_speaking_over_the_answer_silences_it",
    "latency with its parts": "test_page.py::test_the_first_sound_is_timed_as_the_ear_hears_it",
    "event inspector": "test_page.py::test_the_log_shows_what_goes_over_the_wire",
    "calls of the page's tools": (
        "test_page.py::test_a_call_of_the_pages_tool_is_a_card_in_the_script_and_in_the_inspector"
    ),
    "calls of the server's tools": (
        "test_tool_cards.py::test_a_tool_of_the_server_is_a_card_that_shows_the_line_spoken_meanwhile"
    ),
    "device picker in the call bar": "test_page.py::test_another_microphone_takes_over_in_mid_conversation",
    "model and voice picker in sight": "test_voices.py::test_each_voice_is_shown_by_name_kind_and_language",
    "preview of a voice": "test_voices.py::test_a_preview_is_in_the_voices_language_and_its_key_stops_it",
    "instructions": "test_page.py::test_the_settings_say_how_soon_it_answers_and_what_its_part_is",
    "screen share": "test_page.py::test_the_screen_is_shared_and_shown",
    "camera, picture in the script": "test_page.py::test_the_camera_is_shown_to_the_model_and_to_its_owner",
    "text in the same thread": "test_page.py::test_a_question_typed_while_somebody_speaks_is_no_trouble",
    "copy and save text and sound": "test_page.py::test_a_conversation_is_copied_saved_cleared_and_begun_anew",
    "replay": "test_page.py::test_an_answer_and_a_voice_are_played_again_and_then_let_go",
    "push to talk": "test_page.py::test_push_to_talk_answers_what_was_said_while_the_key_was_down",
    "theme switch": "test_page.py::test_the_theme_key_switches_and_the_browser_keeps_the_choice",
    "wake lock": "test_page.py::test_the_screen_stays_on_in_a_call_also_after_the_page_was_hidden",
    "install": "test_page.py::test_the_page_can_be_installed",
    "resume": "test_page.py::test_a_reload_goes_on_with_the_conversation",
    "queue of a full server": "test_trouble.py::test_a_full_server_is_waited_for_in_line",
    "typed line kept": "test_trouble.py::test_a_lost_server_is_named_and_found_again",
    "device and connection check": "test_trouble.py::test_the_doctor_names_the_steps_that_fail",
    "accessibility by axe-core": "test_states.py::test_no_state_has_what_axe_finds_or_a_text_over_another",
    "embed in one line": "test_library.py::test_the_element_of_one_line_talks_and_hangs_up_when_it_goes",
    "memory that the user sees": "test_facts.py::test_facts_are_listed_exported_and_deleted",
    "touch": "test_touch.py::test_a_conversation_is_held_by_touch",
}
"""Left out: a history of conversations, translations of the page, cloned voices and video of the answer."""

BAD_INPUT = {
    "no microphone, denied, taken by another program": "test_trouble.py::test_a_microphone_that_does_not_open_is_named",
    "microphone unplugged in a call": "test_trouble.py::test_a_microphone_that_goes_away_is_named",
    "no camera": "test_bad_input.py::test_a_camera_that_does_not_open_or_goes_away_is_named",
    "server gone for a minute": (
        "test_bad_input.py::test_a_server_that_is_away_longer_than_a_session_waits_finds_the_script_as_it_was"
    ),
    "key that expires": "test_bad_input.py::test_a_key_that_expires_is_asked_for_and_the_typed_line_is_answered",
    "script of 200 turns": "test_bad_input.py::test_a_script_of_200_turns_is_kept_whole_and_goes_on",
    "answer of 90 seconds": "test_bad_input.py::test_an_answer_of_90_seconds_is_shown_whole_and_can_be_stopped",
    "tool that throws": "test_bad_input.py::test_a_tool_that_throws_is_named_and_the_answer_goes_on",
    "reload without a network": "test_bad_input.py::test_a_reload_without_a_server_keeps_the_script_and_the_typed_line",
}
"""What goes wrong around a conversation, and the test that finds one sentence and nothing lost."""


@pytest.mark.parametrize(("what", "test"), [*SHOWN.items(), *BAD_INPUT.items()], ids=[*SHOWN, *BAD_INPUT])
def test_the_test_exists(what: str, test: str) -> None:
    name, _, function = test.partition("::")
    tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}, what
