"""Letter-to-sound rules of English: a pronunciation for any word that no lexicon has.

The method is that of the NRL rules (Elovitz et al., "Automatic Translation of English Text to Phonetics by Means of
Letter-to-Sound Rules", 1976): at each place in the word the first rule whose letters and context fit is applied. The
rules are our own, and their sounds are written in the phonemes of Kokoro (misaki's American English).
"""

from __future__ import annotations

import re
from functools import cache

# letters before [the letters] letters behind -> sounds. In contexts, _ is the word's edge, V a vowel, C a consonant,
# F one of e, i, y, and * any number of the class before it.
_RULES = """
_C*[a]_ -> A            _[are]_ -> ɑɹ           [augh] -> ɔ             [au] -> ɔ               [aw] -> ɔ
[air] -> ɛɹ             [ai] -> A               [ay] -> A               [aye] -> I              V*C[ae] -> i
[ah]_ -> ɑ              [ah]C -> ɑ              [aa] -> ɑ               [ar]_ -> ɑɹ             _C*[are]_ -> ɛɹ
[arr] -> æɹ             [ary]_ -> ɛɹi           _C*[ar]V -> ɛɹ          [ar] -> ɑɹ              V*C[able]_ -> əbᵊl
[alk] -> ɔk             [all]_ -> ɔl            [al]t -> ɔl             VC*[al]_ -> ᵊl          [ange] -> Anʤ
VC*[age]_ -> ɪʤ         [ation] -> Aʃᵊn         [aste] -> Ast           [a]CF_ -> A             [a]Ced_ -> A
[a]Ces_ -> A            [a]Cing_ -> A           [a]CeV* -> A            [a]le_ -> A             VC*[a]_ -> ə
[a]_ -> ə               w[a]C -> ɑ              qu[a]C -> ɑ             [a] -> æ

[bb] -> b               m[b]_ -> _              [b] -> b

[cch]F -> ʧ             [ch]r -> k              s[ch] -> k              [tch] -> ʧ              [ch] -> ʧ
[ck] -> k               [cc]F -> ks             [cc] -> k               [cial] -> ʃᵊl           [cian] -> ʃᵊn
[ci]V -> ʃ              s[c]F -> _              [c]F -> s               [cqu] -> kw             [c] -> k

[dge] -> ʤ              [dg]F -> ʤ              [dd] -> d               td[ed]_ -> ᵻd           [d] -> d

[eigh] -> A             [ear]C -> ɜɹ            [ear] -> ɪɹ             [eau] -> O              [ea]d_ -> ɛ
[ea]lth -> ɛ            [ea] -> i               [eer] -> ɪɹ             [ee] -> i               [ei]n -> A
c[ei] -> i              [ei] -> I               [eu] -> ju              r[ew] -> u              l[ew] -> u
[ew] -> ju              _C*[ere]_ -> ɪɹ         [ergh] -> ɜɹɡ           VC*[er]_ -> əɹ          VC*[ers]_ -> əɹz
[err] -> ɛɹ             _C*[er]C -> ɜɹ           [er]C -> əɹ             [er]V -> ɛɹ             VC*t[ed]_ -> ᵻd
VC*d[ed]_ -> ᵻd         VC*p[ed]_ -> t          VC*k[ed]_ -> t          VC*s[ed]_ -> t          VC*ch[ed]_ -> t
VC*sh[ed]_ -> t         VC*f[ed]_ -> t          VC*x[ed]_ -> t          VC*[ed]_ -> d           VC*s[es]_ -> ᵻz
VC*c[es]_ -> ᵻz         VC*z[es]_ -> ᵻz         VC*x[es]_ -> ᵻz         VC*ch[es]_ -> ᵻz        VC*sh[es]_ -> ᵻz
VC*g[es]_ -> ᵻz         VC*[es]_ -> z           [ey]_ -> i              [ey] -> A               VC*[el]_ -> ᵊl
VC*[en]_ -> ᵊn          VC*[ess]_ -> əs         VC*[est]_ -> əst        VC*[ement] -> mənt      VC*[ent]_ -> ᵊnt
VC*[e]_ -> _            VC*[e]ly_ -> _          VC*[e]ful -> _          VC*[e]less -> _         VC*[e]ness -> _
_C*[e]_ -> i            [e]CF_ -> i             [eo] -> iə              [e]o -> i               [e] -> ɛ

[ff] -> f               [f] -> f

[gg] -> ɡ               _[gn] -> n              [gn]_ -> n              _[gh] -> ɡ              i[gh] -> _
[gh] -> _               VC*n[g]_ -> _           [gu]F -> ɡ              VC*[gue]_ -> ɡ          _[ge]t -> ɡɛ
_[gi]v -> ɡɪ            [g]F -> ʤ               [g] -> ɡ

_[h]our -> _            _[h]onest -> _          [h]V -> h               _[h] -> h               [h] -> _

[igh] -> I              [ign]_ -> In            [ild]_ -> Ild           [ind]_ -> Ind           VC*[ier]_ -> iəɹ
_C*[ie]_ -> I           VC*[ies]_ -> iz         VC*[ied]_ -> id         [ier] -> ɪɹ             [ie]w -> _
[ie] -> i               _C*[ire] -> Iəɹ         VC*[ible]_ -> əbᵊl      [ire]_ -> Iəɹ           [irr] -> ɪɹ
[ir]V -> ɪɹ             [ir] -> ɜɹ              [ique]_ -> ik           [ism]_ -> ɪzᵊm          [ize] -> Iz
[ise]_ -> Iz            VC*[ine]_ -> in         VC*[ive]_ -> ɪv         VC*[ite]_ -> It         [ing]_ -> ɪŋ
[io]_ -> iO             [ious] -> iəs           [ia]_ -> iə             [i]a -> i               [io]n -> iə
_C*[i]CF_ -> I          [i]Ced_ -> I            [i]Ces_ -> I            [i]Cing_ -> I           _C*[i]_ -> I
[i]_ -> i               [i]V -> i               [i] -> ɪ

[j] -> ʤ
_[kn] -> n              [kh] -> k               [kk] -> k               [k] -> k
[ll] -> l               [lm]_ -> m              VC*C[le]_ -> ᵊl         VC*C[les]_ -> ᵊlz       VC*C[led]_ -> ᵊld
[l] -> l
[mm] -> m               [mn]_ -> m              _[mc] -> mək            [m] -> m
[nn] -> n               [ng]th -> ŋ             [ng]_ -> ŋ              [ng]s_ -> ŋ             [n]g -> ŋ
[nk] -> ŋk              _[ngu] -> əŋɡu          [n] -> n

[oar] -> ɔɹ             [oa] -> O               [oeu] -> u              _C*[oe]_ -> O           [oe] -> i
[oor] -> ɔɹ             [ook] -> ʊk             [oo]d_ -> ʊ             [oo] -> u               [ough]t -> ɔ
[ough] -> O             [ould] -> ʊd            [ound] -> Wnd           [our]_ -> ɔɹ            [our] -> ɔɹ
[ous]_ -> əs            [ou]p -> u              [ou] -> W               _C*[ow]_ -> W           VC*[ow]_ -> O
[own]_ -> Wn            [ow]V -> W              [ow] -> O               [oy] -> Y               [oi] -> Y
VC*[or]_ -> əɹ          VC*[ors]_ -> əɹz        w[or]C -> ɜɹ            [orr] -> ɔɹ             [or] -> ɔɹ
[old] -> Old            [olk] -> Ok             [ol]t -> Ol             [oll]_ -> Ol            VC*[om]_ -> əm
VC*[on]_ -> ᵊn          VC*[ons]_ -> ᵊnz        [o]CF_ -> O             [o]Ced_ -> O            [o]Ces_ -> O
[o]Cing_ -> O           [o]CeV* -> O            [os]_ -> Oz             [o]_ -> O               [o]V -> O
[o] -> ɑ

[ph] -> f               _[ps] -> s              _[pn] -> n              [pp] -> p               [p] -> p
[que]_ -> k             [ques]_ -> ks           [qu] -> kw              [q] -> k
_[rh] -> ɹ              [rr] -> ɹ               [r] -> ɹ

[ssion] -> ʃᵊn          [ssure] -> ʃəɹ          V[sion] -> ʒᵊn          [sion] -> ʃᵊn           V[sure] -> ʒəɹ
V[sual] -> ʒuəl         [sch] -> ʃ              [sh] -> ʃ               [ss] -> s               VC*[sm]_ -> zᵊm
V[s]V -> z              V[se]_ -> z             V[s]_ -> z              b[s]_ -> z              d[s]_ -> z
g[s]_ -> z              l[s]_ -> z              m[s]_ -> z              n[s]_ -> z              r[s]_ -> z
v[s]_ -> z              w[s]_ -> z              [s] -> s

[tion] -> ʃᵊn           [tial] -> ʃᵊl           [tious] -> ʃəs          [tient] -> ʃᵊnt         VC*[ture] -> ʧəɹ
VC*[tures] -> ʧəɹz      [tual] -> ʧuəl          _[th]e_ -> ð            [ther] -> ðəɹ           [th] -> θ
[tt] -> t               s[t]le -> _             s[t]en -> _             [t] -> t

[uar] -> uɑɹ            _C*[ui]C -> u           [uy] -> I               [ure]_ -> jʊɹ           [urr] -> ɜɹ
[ur]V -> jʊɹ            [ur] -> ɜɹ              r[u]CF -> u             l[u]CF -> u             j[u]CF -> u
_[u]CF -> ju            [u]CF_ -> ju            [u]Ced_ -> ju           [u]Cing_ -> ju          VC*[ul]_ -> ᵊl
VC*[um]_ -> əm          VC*[us]_ -> əs          [ue]_ -> u              [u]_ -> u               [u]V -> u
[u]CV -> u              [u] -> ʌ

[vv] -> v               [v] -> v
[wr]i -> ɹ              _[wr] -> ɹ              _[who] -> hu            [wh] -> w               [ww] -> w
V[w]_ -> _              [w] -> w
_[x] -> z               [xc]F -> ks             e[x]V -> ɡz             [x] -> ks
_[y]V -> j              _C*[y]_ -> I            [y]_ -> i               _C*[y]C*V -> I          V[y]V -> j
[y]V -> j               [y] -> ɪ
[zz] -> ts              [z] -> z
"""
_CLASSES = {"V": "[aeiouy]", "C": "[bcdfghjklmnpqrstvwxz]", "F": "[eiy]"}
_VOWELS = "AIOQWYiuæɑəɛɜɪʊʌɔᵊᵻ"
_REDUCED = "əᵊᵻ"


def letters_to_sounds(word: str) -> str:
    """Return the phonemes of a word of the letters a to z, with a stress mark before its stressed vowel."""
    sounds: list[str] = []
    at = 0
    while at < len(word):
        for letters, fits, sound in _rules().get(word[at], ()):
            if fits.match(word, at) and _before(letters, word, at):
                sounds.append(sound)
                at += len(letters[1])
                break
        else:
            at += 1
    return _stressed("".join(sounds))


@cache
def _rules() -> dict[str, list[tuple[tuple[re.Pattern[str], str], re.Pattern[str], str]]]:
    """Return the rules by the first of their letters."""
    found: dict[str, list[tuple[tuple[re.Pattern[str], str], re.Pattern[str], str]]] = {}
    for before, letters, after, sound in re.findall(r"(\S*)\[(\w+)\](\S*) -> (\S+)", _RULES):
        left = re.compile(f"{_pattern(before, '^')}$") if before else re.compile("")
        right = re.compile(letters + _pattern(after, "$"))
        found.setdefault(letters[0], []).append(((left, letters), right, "" if sound == "_" else sound))
    return found


def _pattern(context: str, edge: str) -> str:
    classes = {**_CLASSES, "_": edge}
    return "".join(classes.get(one, one) for one in context)


def _before(rule: tuple[re.Pattern[str], str], word: str, at: int) -> bool:
    return rule[0].search(word[:at]) is not None


def _stressed(sounds: str) -> str:
    """Mark the main stress of a word.

    In words of more than three syllables it is the third syllable from the end, or the last one before it with a full
    vowel. In shorter words it is the first syllable with a full vowel.
    """
    places = [i for i, sound in enumerate(sounds) if sound in _VOWELS]
    full = [i for i in places if sounds[i] not in _REDUCED] or places
    if not full:
        return sounds
    early = [i for i in full if i <= places[max(0, len(places) - 3)]] if len(places) > 3 else full[:1]
    at = (early or full)[-1]
    return f"{sounds[:at]}ˈ{sounds[at:]}"
