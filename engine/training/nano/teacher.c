/* The teacher: flite with one voice, compiled in: cc -DVOICE=register_cmu_us_rms.
 *
 *   teacher DIR < lines
 *
 * Reads `id<TAB>spoken text` lines. For each it writes DIR/id.s16 (16 kHz mono, native int16) and DIR/id.f0
 * (float32, Hz, one value every 5 ms, 0 where unvoiced), then prints one line
 *   id<TAB>spoken text<TAB>phone:end_s phone:end_s ...
 * so that the phone times of the speech are known without any alignment.
 *
 *   teacher - < lines
 *
 * prints the same lines and makes no sound: how the teacher would pronounce a list of words, fast.
 */
#include <flite/flite.h>
#include <stdio.h>
#include <string.h>

cst_voice *VOICE(const char *voxdir);

static FILE *open_beside(const char *dir, const char *id, const char *suffix) {
    char path[8192];
    snprintf(path, sizeof path, "%s/%s.%s", dir, id, suffix);
    return fopen(path, "wb");
}

static int write_wave(const cst_wave *wave, const char *dir, const char *id) {
    FILE *file = open_beside(dir, id, "s16");
    if (!file) return 0;
    fwrite(wave->samples, sizeof(short), (size_t)wave->num_samples, file);
    return fclose(file) == 0;
}

static int write_f0(const cst_track *track, const char *dir, const char *id) {
    FILE *file = open_beside(dir, id, "f0");
    if (!file) return 0;
    for (int i = 0; i < track->num_frames; i++) fwrite(&track->frames[i][0], sizeof(float), 1, file);
    return fclose(file) == 0;
}

static void print_phones(const cst_utterance *utterance, const char *id, const char *text) {
    printf("%s\t%s\t", id, text);
    for (cst_item *s = relation_head(utt_relation(utterance, "Segment")); s; s = item_next(s))
        printf("%s:%.4f ", item_feat_string(s, "name"), item_feat_present(s, "end") ? item_feat_float(s, "end") : 0.0);
    printf("\n");
    fflush(stdout);
}

static cst_utterance *no_wave(cst_utterance *utterance) { return utterance; }

static int pronounce(cst_voice *voice, const char *id, const char *text) {
    cst_utterance *utterance = flite_synth_text(text, voice);
    if (!utterance) return 0;
    print_phones(utterance, id, text);
    delete_utterance(utterance);
    return 1;
}

static int speak(cst_voice *voice, const char *dir, const char *id, const char *text) {
    cst_utterance *utterance = flite_synth_text(text, voice);
    if (!utterance) return 0;
    int good = feat_present(utterance->features, "param_track")
        && write_wave(utt_wave(utterance), dir, id)
        && write_f0(val_track(feat_val(utterance->features, "param_track")), dir, id);
    if (good) print_phones(utterance, id, text);
    delete_utterance(utterance);
    return good;
}

int main(int argc, char **argv) {
    char line[4096];
    if (argc != 2) {
        fprintf(stderr, "usage: teacher DIR|- < id<TAB>text lines\n");
        return 2;
    }
    flite_init();
    cst_voice *voice = VOICE(NULL);
    int silent = strcmp(argv[1], "-") == 0;
    if (silent) feat_set(voice->features, "wave_synth_func", uttfunc_val(&no_wave));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *text = strchr(line, '\t');
        if (!text) continue;
        *text++ = 0;
        if (!(silent ? pronounce(voice, line, text) : speak(voice, argv[1], line, text)))
            fprintf(stderr, "no speech for %s\n", line);
    }
    return 0;
}
