// The conversation as text, on a list that knows as much of a document as the captions ask it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Captions } from "../../web/src/captions";

class Element {
  dataset = {};
  children = [];
  attributes = new Set();

  constructor(tag) {
    this.tag = tag;
  }

  set className(names) {
    const set = (this.classList = new Set(names.split(" ")));
    set.remove = set.delete;
    set.toggle = (name, on) => (on ? set.add(name) : set.delete(name));
  }

  setAttribute(name) {
    this.attributes.add(name);
  }

  hasAttribute(name) {
    return this.attributes.has(name);
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  append(...children) {
    for (const child of children) child.parent = this;
    this.children.push(...children);
  }

  remove() {
    this.parent.children.splice(this.parent.children.indexOf(this), 1);
  }

  querySelector(tag) {
    return this.children.find((child) => child.tag === tag) ?? null;
  }

  querySelectorAll(selector) {
    const [, name, attribute] = /^\.(\w+)\[(.+)\]$/.exec(selector);
    return this.children.filter(({ classList, attributes }) => classList.has(name) && attributes.has(attribute));
  }

  get firstElementChild() {
    return this.children[0] ?? null;
  }

  get childElementCount() {
    return this.children.length;
  }

  addEventListener() {}
}

function captions(t) {
  const globals = { document: { createElement: (tag) => new Element(tag) }, ResizeObserver: class { observe() {} } };
  for (const [name, value] of Object.entries(globals)) globalThis[name] = value;
  t.after(() => Object.keys(globals).forEach((name) => delete globalThis[name]));
  const list = new Element("div");
  const shown = () => list.children.map((one) => [one.querySelector("p")?.textContent ?? "", one.hasAttribute("aria-busy")]);
  return { captions: new Captions(list, new Element("div")), shown };
}

test("what a user began to say and no session ends is no longer waited for, and goes where nothing was understood", (t) => {
  const { captions: one, shown } = captions(t);
  one.complete("a", "user", "Hello.");
  one.begin("b", "user");
  one.guess("c", "what time");
  one.begin("d", "answer");
  assert.deepEqual(shown(), [["Hello.", false], ["", true], ["What time", true], ["", true]]);
  one.leave();
  assert.deepEqual(shown(), [["Hello.", false], ["What time", false], ["", true]]);
  one.complete("b", "user", "understood after all");
  assert.deepEqual(shown().at(-1), ["understood after all", false]);
});

test("an entry that leaves the page takes the cards before it along", (t) => {
  const { captions: one, shown } = captions(t);
  const card = new Element("div");
  card.append(new Element("p"));
  one.insert(card);
  for (let n = 0; n < 601; n++) one.complete(`item ${n}`, "user", `said ${n}`);
  assert.equal(shown().length, 600);
  assert.deepEqual(shown()[0], ["said 1", false]);
});
