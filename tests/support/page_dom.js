"use strict";
/* Runs the script of a report page without a browser: node page_dom.js PAGE WIDTH. Prints the drawn elements as JSON.

   A stand-in for the few parts of the DOM that the script uses. An element is {tag, attrs, text, kids}; nothing is laid
   out, so the width of every element is WIDTH, and texts have no size. */
const fs = require("fs");
const [, , file, width] = process.argv;
const page = fs.readFileSync(file, "utf-8");
const between = (from, to) => page.slice(page.indexOf(from) + from.length, page.indexOf(to, page.indexOf(from)));

class Node {
  constructor(tag) { this.tag = tag; this.attrs = {}; this.kids = []; this.style = {}; this.parentNode = null; this.hidden = false; }
  set className(v) { this.attrs.class = v; }
  setAttribute(k, v) { this.attrs[k] = String(v); }
  append(...kids) { for (const k of kids) { if (k instanceof Node) k.parentNode = this; this.kids.push(k instanceof Node ? k : String(k)); } }
  replaceChildren(...kids) { this.kids = []; this.append(...kids); }
  get childNodes() { return this.kids; }
  set textContent(v) { this.kids = [String(v)]; }
  get textContent() { return this.kids.map(k => typeof k === "string" ? k : k.textContent).join(""); }
  get clientWidth() { return Number(width); }
  addEventListener() {}
  toJSON() { return { tag: this.tag, attrs: this.attrs, text: this.textContent, kids: this.kids.filter(k => k instanceof Node) }; }
}
const body = new Node("main"), known = { page: body, tip: new Node("div"), run: new Node("script") };
known.run.textContent = between('<script id="run" type="application/json">', "</script>");
globalThis.document = {
  getElementById: id => known[id], createElement: tag => new Node(tag), createElementNS: (_, tag) => new Node(tag),
};
globalThis.ResizeObserver = class { observe() {} };
const script = page.slice(page.lastIndexOf("<script>") + "<script>".length, page.lastIndexOf("</script>"));
new Function(script)();
process.stdout.write(JSON.stringify(body));
