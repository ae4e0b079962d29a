"""What a soak's lines come to: figures with their bars. Knows no server.

An underrun is beyond the faults unless it overlaps the reach of one. The reach of a killed worker is everybody, from
the kill until its successor is warm (its start takes a core) and 1.5 s longer, which is how far the server is ahead of
a listener. The reach of lost packets is the one call that lost them, until a second after the loss. Those who hang
up, interrupt or read slowly excuse nothing of others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import mean

from app.bench.figures import Figure, percentile
from tests.soak.flat import Sample, swollen
from tests.soak.journal import Answer, Done, Entry, Fault, Lag, Look, Lost, Rest, Started
from tests.soak.slope import Slope, slope

MISSING_MIN = 0.1  # the last look is some seconds before the end
PEAK_MIN = 5.0
UNDERRUNS_BAR, SLOPE_BAR_MB = 1.0, 2.0
KINDS = ("kill", "loss")
GROUPS = ("server", "workers", "users", "others")


def verdict(entries: Sequence[Entry], minutes: float, settled_min: float = 10.0) -> list[Figure]:
    """Every figure of a soak that was to last so long; slopes leave out the first minutes of each life."""
    return [
        Figure(name="minutes under load", value=minutes - minutes_of_load(entries), unit="min missing", bar=MISSING_MIN,
               note=f"{minutes_of_load(entries):.1f} of {minutes:g} min, {_users(entries)}"),
        *_of_answers(entries),
        *_of_memory(entries, settled_min),
        *_of_rests(entries),
        *_of_faults(entries),
        *_of_cores(entries),
    ]  # fmt: skip


def minutes_of_load(entries: Sequence[Entry]) -> float:
    """Over all lives, from the start of the load to the last look."""
    begun = {one.life: one.at_s for one in entries if isinstance(one, Started)}
    ended = {one.life: one.at_s for one in entries if isinstance(one, Look)}
    return sum(ended[life] - begun[life] for life in begun.keys() & ended.keys()) / 60


def excused(answer: Answer, begun_s: float, ended_s: float, faults: Sequence[Fault]) -> bool:
    """Whether something that happened to an answer lies within the reach of a fault."""
    return any(
        fault.life == answer.life
        and fault.user in (None, answer.user)
        and begun_s <= fault.until_s
        and ended_s >= fault.at_s
        for fault in faults
    )


def beyond(entries: Sequence[Entry]) -> Iterator[tuple[Answer, tuple[float, float]]]:
    """The underruns that no fault excuses, with their answers."""
    faults = [one for one in entries if isinstance(one, Fault)]
    for one in entries:
        if isinstance(one, Answer):
            for gap in one.gaps:
                if not excused(one, *gap, faults):
                    yield one, gap


def _of_answers(entries: Sequence[Entry]) -> Iterator[Figure]:
    answers = [one for one in entries if isinstance(one, Answer)]
    faults = [one for one in entries if isinstance(one, Fault)]
    hours, dry = sum(one.sound_s for one in answers) / 3600, list(beyond(entries))
    all_gaps = sum(len(one.gaps) for one in answers)
    ways = Counter(one.way for one, _ in dry)
    note = f"{len(dry)} in {hours:.2f} h of sound" + "".join(f", {count} of {way}" for way, count in ways.most_common())
    note += f"; {all_gaps - len(dry)} more within the reach of faults"
    rate = len(dry) / hours if hours else None
    yield Figure(
        name="underruns an hour of sound, beyond the faults", value=rate, unit="/h", bar=UNDERRUNS_BAR, note=note
    )
    failed = [one for one in answers if one.outcome != "completed"]
    unexcused = [one for one in failed if not excused(one, one.at_s, one.at_s, faults)]
    whys = Counter(f"{one.way}: {one.outcome}" for one in unexcused).most_common(3)
    note = f"of {len(answers)}; {len(failed) - len(unexcused)} more within the reach of faults"
    note += "".join(f"; {count} × {why}" for why, count in whys)
    yield Figure(name="answers that failed, beyond the faults", value=float(len(unexcused)), unit="", bar=0, note=note)
    for way in sorted({one.way for one in answers}):
        times_ms = [one.first_s * 1000 for one in answers if one.way == way and one.first_s is not None]
        value, late = percentile(times_ms, 50), percentile(times_ms, 95)
        if value is not None and late is not None:
            note = f"p95 {late:.0f} ms, {len(times_ms)} answers"
            yield Figure(name=f"first sound, {way}, p50", value=value, unit="ms", note=note)


def _of_memory(entries: Sequence[Entry], settled_min: float) -> Iterator[Figure]:
    """Of each life, each process that was never killed."""
    killed = {one.note.partition(",")[0] for one in entries if isinstance(one, Fault) and one.kind == "kill"}
    killed |= {one.place for one in entries if isinstance(one, Lost)}
    names = {name for one in entries if isinstance(one, Look) for name in one.memory_mb} - killed
    for name in sorted(names):
        found = {life: _slope(series) for life, series in peaks(entries, name, settled_min).items()}
        for life, one in found.items():
            if one is not None:
                title = f"growth of memory, {name}" + (f", life {life}" if len(found) > 1 else "")
                yield Figure(name=f"{title}, 95 % bound", value=one.bound, unit="MB/h", bar=SLOPE_BAR_MB, note=one.note)
        if not any(found.values()):
            note = f"no life was long enough beyond its first {settled_min:g} minutes"
            yield Figure(
                name=f"growth of memory, {name}, 95 % bound", value=None, unit="MB/h", bar=SLOPE_BAR_MB, note=note
            )


def _slope(series: dict[float, float]) -> Slope | None:
    return slope([minute / 60 for minute in series], list(series.values()))


def peaks(entries: Sequence[Entry], name: str, settled_min: float) -> dict[int, dict[float, float]]:
    """The most memory of a process in each whole PEAK_MIN behind the first minutes: by life and by minute [MB].

    A process that gives freed memory back has teeth: it grows into what it needs at most, and falls as it gives back
    what is free at that moment. Where a tooth begins is chance, and its tip is not; a leak lifts both.
    """
    begun = {one.life: one.at_s for one in entries if isinstance(one, Started)}
    found = defaultdict[int, defaultdict[int, list[float]]](lambda: defaultdict(list))
    last_min = dict[int, float]()
    for one in entries:
        if isinstance(one, Look) and name in one.memory_mb and one.life in begun:
            minute = last_min[one.life] = (one.at_s - begun[one.life]) / 60
            if minute >= settled_min:
                found[one.life][int((minute - settled_min) / PEAK_MIN)].append(one.memory_mb[name])
    return {
        life: {
            settled_min + (block + 0.5) * PEAK_MIN: max(values)
            for block, values in by.items()
            if settled_min + (block + 1) * PEAK_MIN <= last_min[life] + MISSING_MIN
        }
        for life, by in found.items()
    }


def _of_rests(entries: Sequence[Entry]) -> Iterator[Figure]:
    """Each life that came to its end: what it holds that it did not hold before."""
    rests = {(one.life, one.when): one for one in entries if isinstance(one, Rest)}
    ended = [life for life, when in rests if when == "end"]
    if not ended:
        yield Figure(name="held by nobody at the end", value=None, unit="", bar=0, note="no life has come to its end")
    for life in ended:
        base, end = (_sample(rests[life, when]) for when in ("base", "end"))
        found = swollen([base, base, end, end])
        note = "; ".join(f"{name} {change}" for name, change in found.items()) or (
            f"memory {base.memory_mb:.0f} → {end.memory_mb:.0f} MB, files {base.files} → {end.files}, "
            f"tasks {base.tasks} → {end.tasks}, threads {base.threads} → {end.threads}"
        )
        yield Figure(name="held by nobody at the end", value=float(len(found)), unit="kinds", bar=0, note=note)


def _sample(rest: Rest) -> Sample:
    return Sample(rest.memory_mb, rest.files, rest.threads, rest.tasks, rest.sessions, rest.leased)


def _of_faults(entries: Sequence[Entry]) -> Iterator[Figure]:
    lost = [one for one in entries if isinstance(one, Lost)]
    note = ", ".join(f"{place} {count}" for place, count in Counter(one.place for one in lost).most_common())
    yield Figure(name="workers lost, beyond the kills", value=float(len(lost)), unit="", bar=0, note=note)
    faults = [one for one in entries if isinstance(one, Fault)]
    for kind in KINDS:
        ours = [one for one in faults if one.kind == kind]
        reach_s = sum(one.until_s - one.at_s for one in ours)
        yield Figure(name=f"faults: {kind}", value=float(len(ours)), unit="", note=f"a reach of {reach_s:.0f} s in all")
    lives = Counter(one.way for one in entries if isinstance(one, Done))
    note = ", ".join(f"{way} {count}" for way, count in lives.most_common())
    yield Figure(name="what users did to its end", value=float(lives.total()), unit="", note=note)


def _of_cores(entries: Sequence[Entry]) -> Iterator[Figure]:
    looks = [one for one in entries if isinstance(one, Look)]
    for group in GROUPS:
        cores = [one.cores[group] for one in looks if group in one.cores]
        if cores:
            note = f"{max(cores):.2f} at most in one look"
            yield Figure(name=f"cores: {group}", value=mean(cores), unit="", note=note)
    lags = [one.longest_s for one in entries if isinstance(one, Lag)]
    if lags:
        note = "what the users' own process came late, at most"
        yield Figure(name="the users' own lag", value=1000 * max(lags), unit="ms", note=note)


def _users(entries: Sequence[Entry]) -> str:
    starts = [one for one in entries if isinstance(one, Started)]
    if not starts:
        return "no users"
    of = "" if starts[-1].capacity is None else f", half of the {starts[-1].capacity} that this machine carries"
    return f"{starts[-1].users} users at once{of}; {len(starts)} starts"
