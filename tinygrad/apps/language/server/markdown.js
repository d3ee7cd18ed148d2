"use strict";
// Markdown to elements. Text becomes text nodes only, and links lead to http, https or mailto, so
// that whatever a model writes runs nothing and loads nothing.

const MAX_NESTING = 8;
const MAX_LINK = 2000;
const MAX_ROW = 2000;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITERS = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const SAFE_LINK = /^(?:https?:\/\/|mailto:)[^\s\u0000-\u001f]+$/i;
const BARE_LINK = /^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]}*_~]/i;
const STYLES = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// ---- blocks ----

const isBlank = line => !/\S/.test(line);
const indentOf = line => /^[ \t]*/.exec(line)[0].length;

function isTable(lines, at) {
  const next = lines[at + 1];
  return at + 1 < lines.length && lines[at].includes("|") && next.includes("|") &&
    next.length < MAX_ROW && DELIMITERS.test(next);
}

function startsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) ||
    QUOTE.test(line) || isTable(lines, at);
}

// the line after the block that starts at a line
function endOfBlock(lines, at) {
  const first = lines[at];
  const fence = FENCE.exec(first);
  let end = at + 1;
  if (fence && !(fence[1][0] === "`" && fence[2].includes("`"))) {
    for (; end < lines.length; end++) {
      const closing = FENCE.exec(lines[end]);
      if (closing && closing[1].startsWith(fence[1]) && isBlank(closing[2])) return end + 1;
    }
    return end;
  }
  if (HEADING.test(first) || RULE.test(first)) return end;
  if (QUOTE.test(first)) {
    while (end < lines.length && QUOTE.test(lines[end])) end++;
    return end;
  }
  if (ITEM.test(first)) return endOfList(lines, at);
  if (isTable(lines, at)) {
    while (end < lines.length && !isBlank(lines[end])) end++;
    return end;
  }
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end)) end++;
  return end;
}

function endOfList(lines, at) {
  let end = at + 1;
  for (let next = end; next < lines.length; next++) {
    const line = lines[next];
    if (isBlank(line)) continue;
    const continues = ITEM.test(line) && !RULE.test(line) || indentOf(line) >= 2 ||
      next === end && !startsBlock(lines, next);
    if (!continues) return end;
    end = next + 1;
  }
  return end;
}

// the sources of the blocks of a text, each with its offset
function blocksOf(text) {
  const lines = text.split("\n");
  const found = [];
  let offset = 0;
  for (let at = 0; at < lines.length;) {
    const end = isBlank(lines[at]) ? at + 1 : endOfBlock(lines, at);
    const source = lines.slice(at, end).join("\n");
    if (!isBlank(lines[at])) found.push({source, offset});
    offset += source.length + 1;
    at = end;
  }
  return found;
}

function renderBlock(source, depth = 0) {
  const lines = source.split("\n");
  const first = lines[0];
  const fence = FENCE.exec(first);
  if (fence && !(fence[1][0] === "`" && fence[2].includes("`"))) return renderCode(lines, fence[1]);
  const heading = HEADING.exec(first);
  if (heading) {
    const text = withoutClosing(first.slice(heading[0].length).trim());
    return withInline(element("h" + heading[1].length), text);
  }
  if (RULE.test(first)) return element("hr");
  if (QUOTE.test(first) && depth < MAX_NESTING) {
    return withBlocks(element("blockquote"), lines.map(line => line.replace(QUOTE, "")), depth);
  }
  if (ITEM.test(first) && depth < MAX_NESTING) return renderList(lines, depth);
  if (isTable(lines, 0)) return renderTable(lines);
  return withInline(element("p"), source);
}

// a heading may be closed by a run of # after a space
function withoutClosing(text) {
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trim() : text;
}

function renderCode(lines, fence) {
  const closing = lines.length > 1 && FENCE.exec(lines[lines.length - 1]);
  const isClosed = closing && closing[1].startsWith(fence) && isBlank(closing[2]);
  const box = element("pre");
  box.append(element("code", "", lines.slice(1, isClosed ? -1 : undefined).join("\n")));
  return box;
}

function renderList(lines, depth) {
  const marker = ITEM.exec(lines[0])[2];
  const isOrdered = marker.length > 1;
  const list = element(isOrdered ? "ol" : "ul");
  if (isOrdered && parseInt(marker, 10) !== 1) {
    list.setAttribute("start", String(parseInt(marker, 10)));
  }
  let item = [];
  const add = () => { if (item.length) list.append(withBlocks(element("li"), item, depth)); };
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && !(item.length && indentOf(line) >= 2)) {
      add();
      item = [line.slice(found[0].length)];
    } else {
      item.push(line.replace(/^(?: {1,4}|\t)/, ""));
    }
  }
  add();
  return list;
}

function renderTable(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, "").split("|");
  const table = element("table");
  const width = cells(lines[0]).length;
  [lines[0], ...lines.slice(2)].forEach((line, number) => {
    const row = element("tr");
    for (const cell of cells(line).slice(0, width)) {
      row.append(withInline(element(number ? "td" : "th"), cell.trim()));
    }
    table.append(row);
  });
  return table;
}

function withBlocks(parent, lines, depth) {
  const blocks = blocksOf(lines.join("\n"));
  const isShort = parent.tagName.toLowerCase() === "li";
  for (const {source} of blocks) {
    const made = renderBlock(source, depth + 1);
    // an item of a list has no paragraph if it is its first block
    if (isShort && made.tagName.toLowerCase() === "p" && source === blocks[0].source) {
      withInline(parent, source);
    } else {
      parent.append(made);
    }
  }
  return parent;
}

// ---- text ----

function withInline(parent, text, depth = 0) {
  let plain = "";
  const missing = new Set();
  const flush = () => {
    if (plain) parent.append(document.createTextNode(plain));
    plain = "";
  };
  for (let at = 0; at < text.length;) {
    const found = depth < MAX_NESTING ? inlineAt(text, at, missing, depth) : null;
    if (!found) {
      plain += text[at++];
      continue;
    }
    flush();
    if (found.node) parent.append(found.node);
    else plain = found.text;
    at = found.end;
  }
  flush();
  return parent;
}

// the element, or the text, that starts at a place of a text, and its end
function inlineAt(text, at, missing, depth) {
  const character = text[at];
  if (character === "\\" && /[!-\/:-@\[-`{-~]/.test(text[at + 1] || "")) {
    return {text: text[at + 1], end: at + 2};
  }
  if (character === "`") return codeAt(text, at, missing);
  if (character === "[" || character === "!" && text[at + 1] === "[") {
    return linkAt(text, at, depth);
  }
  if (character === "<") {
    const end = text.slice(at, at + MAX_LINK).indexOf(">");
    const url = end > 0 ? text.slice(at + 1, at + end) : "";
    return SAFE_LINK.test(url) ? {node: linkTo(url, url, MAX_NESTING), end: at + end + 1} : null;
  }
  if ((character === "h" || character === "H") && !/\w/.test(text[at - 1] || " ")) {
    const url = (BARE_LINK.exec(text.slice(at, at + MAX_LINK)) || [""])[0];
    return url ? {node: linkTo(url, url, MAX_NESTING), end: at + url.length} : null;
  }
  return "*_~".includes(character) ? styleAt(text, at, missing, depth) : null;
}

function codeAt(text, at, missing) {
  const mark = /^`+/.exec(text.slice(at, at + MAX_LINK))[0];
  let close = missing.has(mark) ? -1 : text.indexOf(mark, at + mark.length);
  while (close >= 0 && text[close + mark.length] === "`") {
    let run = close;
    while (text[run] === "`") run++;
    close = text.indexOf(mark, run);
  }
  if (close < 0) {
    missing.add(mark);
    return {text: mark, end: at + mark.length};
  }
  const code = text.slice(at + mark.length, close);
  const inner = /^ .*\S.* $/s.test(code) ? code.slice(1, -1) : code;
  return {node: element("code", "", inner), end: close + mark.length};
}

// [text](url "title"); an image is shown as a link, since nothing is loaded from other hosts
function linkAt(text, at, depth) {
  const start = text[at] === "!" ? at + 2 : at + 1;
  const part = text.slice(start, start + MAX_LINK);
  const label = part.indexOf("](");
  if (label < 0 || part.slice(0, label).includes("\n\n")) return null;
  const target = /^<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/.exec(
    part.slice(label + 2, label + 2 + MAX_LINK));
  if (!target || !SAFE_LINK.test(target[1])) return null;
  const shown = part.slice(0, label) || target[1];
  return {node: linkTo(target[1], shown, depth + 1), end: start + label + 2 + target[0].length};
}

function linkTo(url, label, depth) {
  const link = element("a");
  link.setAttribute("href", url);
  link.setAttribute("rel", "noopener noreferrer");
  link.setAttribute("target", "_blank");
  return withInline(link, label, depth);
}

function styleAt(text, at, missing, depth) {
  for (const [mark, tag] of STYLES) {
    if (!text.startsWith(mark, at)) continue;
    const start = at + mark.length;
    const opens = /\S/.test(text[start] || " ") && text[start] !== mark[0] &&
      !(mark[0] === "_" && /\w/.test(text[at - 1] || " "));
    const end = opens && !missing.has(mark) ? closeOf(text, start, mark) : -1;
    if (end >= 0) {
      return {node: withInline(element(tag), text.slice(start, end), depth + 1),
              end: end + mark.length};
    }
    if (opens) missing.add(mark);
  }
  let run = at;
  while (text[run] === text[at]) run++;
  return {text: text.slice(at, run), end: run};
}

// where a style ends that starts at a place; whether a mark ends one does not depend on the start
function closeOf(text, start, mark) {
  for (let end = text.indexOf(mark, start + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length] || " ";
    const isLonger = after === mark[0] || mark.length === 1 && text[end - 1] === mark;
    if (/\S/.test(text[end - 1]) && !isLonger && !(mark[0] === "_" && /\w/.test(after))) return end;
  }
  return -1;
}

// ---- growing texts ----

// shows a text that grows at its end; elements of blocks that cannot change any more stay
class MarkdownView {
  constructor(place) {
    this.place = place;
    this.blocks = [];
  }

  update(text) {
    // an unfinished line may look like a block of its own, so that the two last ones can change
    const kept = this.blocks.slice(0, -2);
    const start = this.blocks.length > 2 ? this.blocks[kept.length].offset : 0;
    const found = blocksOf(text.slice(start)).map(block => (
      {source: block.source, offset: block.offset + start}));
    const nodes = this.place.childNodes;
    found.forEach((block, number) => {
      const at = kept.length + number;
      const old = this.blocks[at];
      if (old && old.source === block.source) return;
      const made = renderBlock(block.source);
      if (nodes[at]) this.place.replaceChild(made, nodes[at]);
      else this.place.append(made);
    });
    this.blocks = [...kept, ...found];
    while (nodes.length > this.blocks.length) this.place.removeChild(nodes[nodes.length - 1]);
  }
}
