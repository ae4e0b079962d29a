/* One decode step of a Qwen3 decoder stack, and a whole frame of a code predictor, each as one call.
 *
 * Small stacks on a CPU spend their time on dispatch, not on sums: a frame of fifteen tiny passes is some thousand
 * operations in torch. Here it is plain loops over the same weights and the same KV slots, which torch prefills.
 * float32, one thread, no state of its own; native.py holds the structures, and engine/worker/nn has the same
 * computation in torch, which serves where this was not built. Knows no Python.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2 /* raised with every change of a structure or a signature; native.py compares */
#define EXPORT __attribute__((visibility("default")))

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

#define INLINE static inline __attribute__((always_inline)) /* else it misses the clones of its callers */

typedef float lanes __attribute__((vector_size(64), aligned(4)));
typedef float eight __attribute__((vector_size(32)));
typedef float four __attribute__((vector_size(16)));
enum { LANES = 16 };

typedef struct {
    const float *before, *qkv, *qkv_bias, *query_norm, *key_norm, *out, *out_bias, *between;
    const float *router; /* NULL: one dense part, whose weights are those of a single expert */
    const float *gate_up, *down;
    const float *shared_gate, *shared_gate_up, *shared_down; /* NULL: no shared expert */
} Layer;

typedef struct {
    int64_t layers, width, heads, kv_heads, dim, inner, experts, top_k, normalise, shared_inner;
    int64_t slots, length; /* of the cache */
    double eps;
    const Layer *layer;
    const float *norm;
    float *keys, *values; /* [layers, slots, kv_heads, length, dim] */
} Stack;

typedef struct {
    const Stack *stack;
    int64_t groups, vocabulary;
    const float *const *codes; /* [groups - 1] tables [vocabulary, width] */
    const float *const *heads; /* alike */
    const float *cosines, *sines; /* [groups + 1, dim] */
    int64_t stream, top_k;
    double top_p;
} Predictor;

/* What a forward gives and takes beside its rows: a copy of them as they leave layer `tap` (counted from 1; 0: none),
 * and what is added to those that leave the first `deep` layers: added [deep, rows, width]. */
typedef struct {
    int64_t tap, deep;
    float *tapped;
    const float *added;
} Extra;

/* What a step computes in, one block of memory. */
typedef struct {
    float *normed, *qkv, *mixed, *answer, *gathered, *inner, *shares, *scores, *routed;
    int64_t *rows;
} Scratch;

EXPORT int64_t version(void) { return VERSION; }

/* --- Products */

INLINE four folded(lanes x) {
    eight half = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                 __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

INLINE float dot(const float *restrict w, const float *restrict x, int64_t count) {
    lanes sums = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) sums += *(const lanes *)(w + i) * *(const lanes *)(x + i);
    four rest = folded(sums);
    float sum = (rest[0] + rest[1]) + (rest[2] + rest[3]);
    for (; i < count; i++) sum += w[i] * x[i];
    return sum;
}

/* Four products with the same x at once: [w, w + count, w + 2 count, w + 3 count] . x */
INLINE four dots(const float *restrict w, const float *restrict x, int64_t count) {
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes y = *(const lanes *)(x + i);
        a += *(const lanes *)(w + i) * y;
        b += *(const lanes *)(w + i + count) * y;
        c += *(const lanes *)(w + i + 2 * count) * y;
        d += *(const lanes *)(w + i + 3 * count) * y;
    }
    four e = folded(a), f = folded(b), g = folded(c), h = folded(d);
    four ef = __builtin_shufflevector(e, f, 0, 4, 1, 5) + __builtin_shufflevector(e, f, 2, 6, 3, 7);
    four gh = __builtin_shufflevector(g, h, 0, 4, 1, 5) + __builtin_shufflevector(g, h, 2, 6, 3, 7);
    four sums = __builtin_shufflevector(ef, gh, 0, 1, 4, 5) + __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
    for (; i < count; i++) sums += (four){w[i], w[i + count], w[i + 2 * count], w[i + 3 * count]} * x[i];
    return sums;
}

/* out[r][o] = weight[o] . x[r] (+ bias[o]): each row of the weights comes from memory once, for all rows of x. */
FAST static void product(const float *restrict x, const float *restrict weight, const float *restrict bias,
                         float *restrict out, int64_t rows, int64_t into, int64_t wide) {
    int64_t o = 0;
    for (; o + 4 <= wide; o += 4)
        for (int64_t r = 0; r < rows; r++) {
            four sums = dots(weight + o * into, x + r * into, into);
            for (int64_t k = 0; k < 4; k++) out[r * wide + o + k] = sums[k] + (bias ? bias[o + k] : 0);
        }
    for (; o < wide; o++)
        for (int64_t r = 0; r < rows; r++)
            out[r * wide + o] = dot(weight + o * into, x + r * into, into) + (bias ? bias[o] : 0);
}

/* e to the x, to 2 units in the last place: 2^n times a polynomial of what is left of x / ln 2 (Cephes' expf). */
INLINE float power(float x) {
    const float magic = 12582912; /* 1.5 * 2^23: what is added to it is rounded to a whole number */
    x = x < -87 ? -87 : x > 88 ? 88 : x;
    float shifted = x * 1.44269504f + magic, n = shifted - magic;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1;
    union { float f; uint32_t i; } bits = {shifted}, scale;
    scale.i = (bits.i + 127) << 23;
    return y * scale.f;
}

static void normalise(const float *x, const float *weight, float *out, int64_t width, double eps) {
    float squares = 0;
    for (int64_t i = 0; i < width; i++) squares += x[i] * x[i];
    float scale = 1 / sqrtf(squares / width + (float)eps);
    for (int64_t i = 0; i < width; i++) out[i] = x[i] * scale * weight[i];
}

FAST static void softmax(float *restrict x, int64_t count) {
    float best = x[0], sum = 0;
    for (int64_t i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
    for (int64_t i = 0; i < count; i++) x[i] = power(x[i] - best);
    for (int64_t i = 0; i < count; i++) sum += x[i];
    for (int64_t i = 0; i < count; i++) x[i] /= sum;
}

/* --- Attention */

static void rotate(float *x, const float *cosines, const float *sines, int64_t dim) {
    int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float low = x[i], high = x[i + half];
        x[i] = low * cosines[i] - high * sines[i];
        x[i + half] = high * cosines[i + half] + low * sines[i + half];
    }
}

/* One query [dim] over the first `count` keys and values of its head. */
FAST static void attend(const float *restrict query, const float *restrict keys, const float *restrict values,
                        float *restrict scores, float *restrict out, int64_t count, int64_t dim) {
    product(query, keys, NULL, scores, 1, dim, count);
    float scale = 1 / sqrtf((float)dim);
    for (int64_t t = 0; t < count; t++) scores[t] *= scale;
    softmax(scores, count);
    memset(out, 0, dim * sizeof *out);
    for (int64_t t = 0; t < count; t++)
        for (int64_t i = 0; i < dim; i++) out[i] += scores[t] * values[t * dim + i];
}

/* Append a row to its slot and mix what it sees: qkv [heads + 2 kv_heads, dim] → mixed [heads, dim]. */
static void attention(const Stack *s, int64_t at, const Layer *layer, float *qkv, int64_t slot, int64_t start,
                      const float *cosines, const float *sines, float *scores, float *mixed) {
    int64_t dim = s->dim, group = s->heads / s->kv_heads, head = s->length * dim;
    int64_t base = (at * s->slots + slot) * s->kv_heads * head;
    float *key = qkv + s->heads * dim, *value = key + s->kv_heads * dim;
    for (int64_t h = 0; h < s->heads + s->kv_heads; h++) {
        float *one = qkv + h * dim;
        normalise(one, h < s->heads ? layer->query_norm : layer->key_norm, one, dim, s->eps);
        rotate(one, cosines, sines, dim);
    }
    for (int64_t h = 0; h < s->kv_heads; h++) {
        memcpy(s->keys + base + h * head + start * dim, key + h * dim, dim * sizeof *key);
        memcpy(s->values + base + h * head + start * dim, value + h * dim, dim * sizeof *value);
    }
    for (int64_t h = 0; h < s->heads; h++) {
        int64_t from = base + h / group * head;
        attend(qkv + h * dim, s->keys + from, s->values + from, scores, mixed + h * dim, start + 1, dim);
    }
}

/* --- The feed-forward part */

FAST static void swiglu(const float *restrict gate, const float *restrict value, float *restrict out, int64_t size) {
    for (int64_t i = 0; i < size; i++) out[i] = gate[i] / (1 + power(-gate[i])) * value[i];
}

/* inner [rows, 3 size]: gates and values side by side, then what they make together. */
static void gated(const float *x, const float *gate_up, const float *down, float *inner, float *out, int64_t rows,
                  int64_t width, int64_t size) {
    product(x, gate_up, NULL, inner, rows, width, 2 * size);
    float *kept = inner + rows * 2 * size;
    for (int64_t r = 0; r < rows; r++)
        swiglu(inner + r * 2 * size, inner + r * 2 * size + size, kept + r * size, size);
    product(kept, down, NULL, out, rows, size, width);
}

/* The shares [experts] of one row: those of its best experts; the others get 0, which no chosen one has. */
static void choose(const Stack *s, float *shares, float *routed) {
    softmax(shares, s->experts);
    memcpy(routed, shares, s->experts * sizeof *routed);
    memset(shares, 0, s->experts * sizeof *shares);
    float sum = 0;
    for (int64_t k = 0; k < s->top_k; k++) {
        int64_t best = 0;
        for (int64_t e = 1; e < s->experts; e++) best = routed[e] > routed[best] ? e : best;
        sum += shares[best] = routed[best];
        routed[best] = -1;
    }
    for (int64_t e = 0; s->normalise && e < s->experts; e++) shares[e] /= sum;
}

/* Every expert answers the rows that chose it; x and its answer are [rows, width]. */
static void mixture(const Stack *s, const Layer *layer, const float *x, float *out, int64_t rows, Scratch *t) {
    int64_t width = s->width;
    memset(out, 0, rows * width * sizeof *out);
    product(x, layer->router, NULL, t->shares, rows, width, s->experts);
    for (int64_t r = 0; r < rows; r++) choose(s, t->shares + r * s->experts, t->routed);
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t count = 0;
        for (int64_t r = 0; r < rows; r++) {
            if (t->shares[r * s->experts + e] == 0) continue; /* NaN is not 0: what is ill stays ill */
            memcpy(t->gathered + count * width, x + r * width, width * sizeof *x);
            t->rows[count++] = r;
        }
        if (!count) continue;
        gated(t->gathered, layer->gate_up + e * 2 * s->inner * width, layer->down + e * width * s->inner, t->inner,
              t->gathered, count, width, s->inner);
        for (int64_t i = 0; i < count; i++) {
            float share = t->shares[t->rows[i] * s->experts + e];
            for (int64_t j = 0; j < width; j++) out[t->rows[i] * width + j] += share * t->gathered[i * width + j];
        }
    }
    if (!layer->shared_gate) return;
    gated(x, layer->shared_gate_up, layer->shared_down, t->inner, t->gathered, rows, width, s->shared_inner);
    for (int64_t r = 0; r < rows; r++) {
        float gate;
        product(x + r * width, layer->shared_gate, NULL, &gate, 1, width, 1);
        gate = 1 / (1 + power(-gate));
        for (int64_t j = 0; j < width; j++) out[r * width + j] += gate * t->gathered[r * width + j];
    }
}

/* --- A step */

static int reserve(const Stack *s, int64_t rows, Scratch *t) {
    int64_t all = (s->heads + 2 * s->kv_heads) * s->dim, wide = s->inner > s->shared_inner ? s->inner : s->shared_inner;
    int64_t sizes[] = {s->width, all, s->heads * s->dim, s->width, s->width, 3 * wide, s->experts}, sum = 0;
    for (int i = 0; i < 7; i++) sum += rows * sizes[i];
    float *at = malloc((sum + s->length + s->experts) * sizeof *at);
    t->rows = malloc(rows * sizeof *t->rows);
    float **parts[] = {&t->normed, &t->qkv, &t->mixed, &t->answer, &t->gathered, &t->inner, &t->shares};
    for (int i = 0; at && i < 7; at += rows * sizes[i++]) *parts[i] = at;
    t->scores = at, t->routed = at ? at + s->length : NULL;
    return at && t->rows ? 0 : -1;
}

static void release(Scratch *t) {
    if (t->scores) free(t->normed);
    free(t->rows);
}

static void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += y[i];
}

static void norms(const Stack *s, const float *x, const float *weight, float *out, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) normalise(x + r * s->width, weight, out + r * s->width, s->width, s->eps);
}

/* Without slots the batch's rows are the slots, and all start alike; a stride of 0 gives all the same angles. */
static void pass(const Stack *s, float *x, int64_t rows, const int64_t *slots, const int64_t *starts,
                 const float *cosines, const float *sines, int64_t stride, const Extra *extra, Scratch *t) {
    int64_t all = (s->heads + 2 * s->kv_heads) * s->dim, mixed = s->heads * s->dim;
    for (int64_t i = 0; i < s->layers; i++) {
        const Layer *layer = s->layer + i;
        norms(s, x, layer->before, t->normed, rows);
        product(t->normed, layer->qkv, layer->qkv_bias, t->qkv, rows, s->width, all);
        for (int64_t r = 0; r < rows; r++)
            attention(s, i, layer, t->qkv + r * all, slots ? slots[r] : r, starts[r * (slots != NULL)],
                      cosines + r * stride, sines + r * stride, t->scores, t->mixed + r * mixed);
        product(t->mixed, layer->out, layer->out_bias, t->answer, rows, mixed, s->width);
        add(x, t->answer, rows * s->width);
        norms(s, x, layer->between, t->normed, rows);
        if (layer->router)
            mixture(s, layer, t->normed, t->answer, rows, t);
        else
            gated(t->normed, layer->gate_up, layer->down, t->inner, t->answer, rows, s->width, s->inner);
        add(x, t->answer, rows * s->width);
        if (extra && extra->tap == i + 1) memcpy(extra->tapped, x, rows * s->width * sizeof *x);
        if (extra && i < extra->deep) add(x, extra->added + i * rows * s->width, rows * s->width);
    }
    norms(s, x, s->norm, x, rows);
}

/* x [rows, width]: each row, appended to its slot at its start, becomes its hidden row after the last norm. A slot's
 * rows come in order, so that each sees those before it. cosines and sines [rows, dim] are of their places. -1: no
 * memory. */
EXPORT int step(const Stack *s, float *x, int64_t rows, const int64_t *slots, const int64_t *starts,
                const float *cosines, const float *sines, const Extra *extra) {
    Scratch t = {0};
    int failed = reserve(s, rows, &t);
    if (!failed) pass(s, x, rows, slots, starts, cosines, sines, s->dim, extra, &t);
    release(&t);
    return failed;
}

/* --- A frame: the draws are those of sampler.py, number for number */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static float uniform(uint64_t seed, uint64_t stream, uint64_t step_, uint64_t book) {
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    uint64_t state = mix(seed + golden * (stream + 1));
    state = mix(state + (step_ + 1) * golden);
    return (float)(mix(state + golden * (book + 1)) >> 40) / (1 << 24);
}

/* The top_k likeliest, sorted; of two alike the first comes first. Returns how many there are. */
static int64_t sorted_top(const Predictor *p, const float *logits, float *kept, int64_t *ids) {
    int64_t count = 0;
    for (int64_t i = 0; i < p->vocabulary; i++) {
        if (count == p->top_k && !(logits[i] > kept[count - 1])) continue;
        int64_t at = count < p->top_k ? count++ : count - 1;
        for (; at > 0 && kept[at - 1] < logits[i]; at--) kept[at] = kept[at - 1], ids[at] = ids[at - 1];
        kept[at] = logits[i], ids[at] = i;
    }
    return count;
}

/* Of the likeliest, those that begin below top_p are kept; the point in their sum says which is drawn. */
static int64_t drawn(const Predictor *p, const float *logits, float point) {
    float kept[p->top_k], sum = 0, whole = 0;
    int64_t ids[p->top_k], count = sorted_top(p, logits, kept, ids);
    softmax(kept, count);
    for (int64_t k = 0; k < count; k++) {
        if (k == 0 || sum < (float)p->top_p) whole = sum + kept[k];
        sum += kept[k];
    }
    sum = 0;
    for (int64_t k = 0; k < count; k++)
        if ((sum += kept[k]) > point * whole) return ids[k];
    return ids[count - 1];
}

static int64_t draw(const Predictor *p, const float *logits, int greedy, uint64_t seed, uint64_t step_, int64_t book) {
    int64_t best = 0;
    for (int64_t i = 0; i < p->vocabulary; i++) {
        if (isnan(logits[i])) return -1;
        best = logits[i] > logits[best] ? i : best;
    }
    return greedy ? best : drawn(p, logits, uniform(seed, p->stream, step_, book));
}

/* hidden, first [rows, width] → codes [rows, groups - 1], and the sum of their embeddings, total [rows, width].
 * A code of -1: its logits were not numbers. The cache's slots are the rows of the batch. -1: no memory. */
EXPORT int frame(const Predictor *p, const float *hidden, const float *first, int64_t rows, const uint8_t *greedy,
                 const int64_t *seeds, const int64_t *steps, int64_t *codes, float *total) {
    const Stack *s = p->stack;
    int64_t width = s->width, size = rows * width;
    Scratch t = {0};
    float *x = malloc((size + rows * p->vocabulary) * sizeof *x), *logits = x + size;
    int failed = !x || reserve(s, rows, &t) ? -1 : 0;
    if (!failed) memset(total, 0, size * sizeof *total);
    for (int64_t at = 0; !failed && at <= p->groups - 1; at++) {
        if (at < 2) memcpy(x, at ? first : hidden, size * sizeof *x);
        pass(s, x, rows, NULL, &at, p->cosines + at * s->dim, p->sines + at * s->dim, 0, NULL, &t);
        if (!at) continue; /* the talker's row only goes into the cache */
        product(x, p->heads[at - 1], NULL, logits, rows, width, p->vocabulary);
        for (int64_t r = 0; r < rows; r++) {
            int64_t code = draw(p, logits + r * p->vocabulary, greedy[r], seeds[r], steps[r], at);
            codes[r * (p->groups - 1) + at - 1] = code;
            memcpy(x + r * width, p->codes[at - 1] + (code < 0 ? 0 : code) * width, width * sizeof *x);
        }
        add(total, x, size);
    }
    release(&t);
    free(x);
    return failed;
}
