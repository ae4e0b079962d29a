// Markdown as elements, written as tags around the texts of their ranges.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parse } from "../../web/src/markdown";
import { sentenceCase } from "../../web/src/sentence_case";

function shown(source) {
  const text = (part) => {
    if (!("tag" in part)) return source.slice(part.from, part.to);
    const { tag, parts, kind, href, start } = part;
    const more = [kind && ` ${kind}`, href && ` ${href}`, start > 1 && ` ${start}`].filter(Boolean).join("");
    return `<${tag}${more}>${parts.map(text).join("")}</${tag}>`;
  };
  return parse(source).map(text).join("");
}

test("emphasis, code and links within a line", () => {
  const cases = [
    ["plain words", "<p>plain words</p>"],
    ["**bold** and *slanted* and __bold__ and _slanted_", "<p><strong>bold</strong> and <em>slanted</em> and <strong>bold</strong> and <em>slanted</em></p>"],
    ["***both*** ~~gone~~", "<p><strong><em>both</em></strong> <del>gone</del></p>"],
    ["*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"],
    ["`x * y * z` and ``a ` b``", "<p><code>x * y * z</code> and <code>a ` b</code></p>"],
    ["[here](https://example.com/a)", "<p><a https://example.com/a>here</a></p>"],
    ["5 * 3 * 2 and snake_case_name", "<p>5 * 3 * 2 and snake_case_name</p>"],
    ["**never closed", "<p>**never closed</p>"],
    ["\\*not slanted\\*", "<p>*not slanted*</p>"],
  ];
  for (const [source, expected] of cases) assert.equal(shown(source), expected);
});

test("an address that is not of the web is no link", () => {
  for (const source of ["[x](javascript:alert(1))", "[x](data:text/html,x)", "[x](/v1/models)"]) {
    assert.equal(shown(source), `<p>${source}</p>`);
  }
});

test("blocks: headings, lists within lists, quotes, code, rules, paragraphs", () => {
  assert.equal(shown("## A *title*\nwords"), "<p heading>A <em>title</em></p><p>words</p>");
  assert.equal(shown("one\ntwo\n\nthree"), "<p>one\ntwo</p><p>three</p>");
  assert.equal(shown("- a\n- b\n  more\n\n- c"), "<ul><li>a</li><li>b\nmore</li><li>c</li></ul>");
  assert.equal(shown("3. a\n   - x\n   - y\n4. b"), "<ol 3><li>a<ul><li>x</li><li>y</li></ul></li><li>b</li></ol>");
  assert.equal(shown("words:\n* a\n1) b"), "<p>words:</p><ul><li>a</li></ul><ol><li>b</li></ol>");
  assert.equal(shown("> a\n> b"), "<blockquote>a\nb</blockquote>");
  assert.equal(shown("```py\nx = **1**\n\ny\n```\nafter"), "<pre><code>x = **1**\n\ny</code></pre><p>after</p>");
  assert.equal(shown("```\nno end"), "<pre><code>no end</code></pre>");
  assert.equal(shown("a\n\n---\nb"), "<p>a</p><hr></hr><p>b</p>");
});

test("a table has its cells, and a line with a bar is none", () => {
  const table = "| Day | *Sky* |\n|:--|--:|\n| Mon | |\n| a \\| b | c |";
  const cells = "<tr><td>Mon</td><td></td></tr><tr><td>a | b</td><td>c</td></tr>";
  assert.equal(shown(table), `<table><tr><th>Day</th><th><em>Sky</em></th></tr>${cells}</table>`);
  assert.equal(shown("this | that"), "<p>this | that</p>");
});

test("every beginning of a source parses, and its ranges are in order and within it", () => {
  const source = "# T\n\n- **a** `b`\n  - c\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n> q\n\n***z*** [l](https://e.org) \\";
  for (let end = 0; end <= source.length; end++) {
    let last = 0;
    const visit = (part) => {
      if ("tag" in part) return part.parts.forEach(visit);
      assert.ok(last <= part.from && part.from <= part.to && part.to <= end, `${end}: ${JSON.stringify(part)}`);
      last = part.to;
    };
    parse(source.slice(0, end)).forEach(visit);
  }
});

test("recognized speech is a sentence, unless the model wrote one", () => {
  assert.equal(sentenceCase("what should i do when i'm late", true), "What should I do when I'm late");
  assert.equal(sentenceCase("tu i teraz", false), "Tu i teraz");
  assert.equal(sentenceCase("'tis fine", true), "'Tis fine");
  for (const written of ["so i said: no", "ask NASA", "ok.", "東京", ""]) assert.equal(sentenceCase(written, true), written);
});
