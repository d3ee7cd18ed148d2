// As much of the DOM as markdown.js uses; `htmlOf` writes it as HTML.
"use strict";
class StandIn {
  constructor(tag, text = "") {
    this.tagName = tag.toUpperCase();
    this.attributes = {};
    this.childNodes = [];
    this.text = text;
  }
  set className(name) { this.attributes.class = name; }
  set textContent(text) { this.childNodes = [new StandIn("#text", String(text))]; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(...nodes) {
    for (const node of nodes) {
      if (!(node instanceof StandIn)) throw new Error("no node: " + node);
      this.childNodes.push(node);
    }
  }
  replaceChild(made, old) { this.childNodes[this.childNodes.indexOf(old)] = made; }
  removeChild(old) { this.childNodes.splice(this.childNodes.indexOf(old), 1); }
}
const document = {
  createElement: tag => new StandIn(tag),
  createTextNode: text => new StandIn("#text", text),
};
const escaped = text => text.replace(/[&<>"]/g, one => `&#${one.charCodeAt(0)};`);
function htmlOf(node) {
  if (node.tagName === "#TEXT") return escaped(node.text);
  const inner = node.childNodes.map(htmlOf).join("");
  if (node.tagName === "DIV") return inner;
  const fields = Object.entries(node.attributes).map(([k, v]) => ` ${k}="${escaped(v)}"`).join("");
  return `<${node.tagName.toLowerCase()}${fields}>${inner}</${node.tagName.toLowerCase()}>`;
}
