"use strict";
const $ = id => document.getElementById(id);
const log = $("log"), input = $("input"), send = $("send"), stop = $("stop");
const SETTINGS = ["system", "temperature", "max-tokens", "key"];
const CONVERSATION = "conversation", DRAFT = "draft";
// {role, content, reasoning, note} each; the note says how a reply ended
let messages = [];
let running = null;

// settings are kept in local storage; without storage, until the page is closed
const stored = (() => { try { return window.localStorage; } catch { return null; } })();
for (const name of SETTINGS) {
  $(name).value = stored?.getItem(name) ?? "";
  $(name).addEventListener("change", () => stored?.setItem(name, $(name).value));
}

// the conversation and the message being written are kept for reloads of this tab, and of a reply
// in progress, the tokens so far
const tab = (() => { try { return window.sessionStorage; } catch { return null; } })();
function store(name, text) {
  try { tab?.setItem(name, text); } catch { /* it is longer than what a tab may store */ }
}

function keep(unfinished = []) {
  store(CONVERSATION, JSON.stringify([...messages, ...unfinished]));
}

function kept() {
  try {
    const found = JSON.parse(tab?.getItem(CONVERSATION) ?? "[]");
    const isMessage = one => ["user", "assistant"].includes(one.role) &&
      [one.content, one.reasoning ?? "", one.note ?? ""].every(x => typeof x === "string");
    return Array.isArray(found) && found.every(isMessage) ? found : [];
  } catch { return []; }
}

function addMessage(role, text) {
  const message = element("div", "message " + role);
  message.append(element("span", "hidden", role === "user" ? "You: " : "Model: "),
                 element("div", "text", text));
  log.append(message);
  return message;
}

// the place of a message's content; reasoning has one of its own
const placeOf = message => message.querySelector(":scope > .text");

function addReasoning(message) {
  const box = element("details", "reasoning");
  box.append(element("summary", "", "Reasoning"), element("div", "text"));
  placeOf(message).before(box);
  return box.lastChild;
}

// what is shown of a message that is complete
function addEnd(message, {content, note}) {
  if (!content) placeOf(message).append(element("span", "note", "(empty reply)"));
  addActions(message, content).textContent = note;
}

function restore() {
  input.value = tab?.getItem(DRAFT) ?? "";
  messages = kept();
  for (const one of messages) {
    const message = addMessage(one.role, one.role === "user" ? one.content : "");
    if (one.role === "user") continue;
    if (one.reasoning) addReasoning(message).textContent = one.reasoning;
    new MarkdownView(placeOf(message)).update(one.content);
    addEnd(message, one);
  }
  if (messages.at(-1)?.role === "user") {
    takeBack(log.lastChild);
    keep();
  }
  log.scrollTop = log.scrollHeight;
}

function addActions(message, text) {
  const actions = element("div", "actions");
  const copy = element("button", "", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; }
    catch { copy.textContent = "Copying is not allowed here"; }
  });
  actions.append(copy, element("span", "note"));
  message.append(actions);
  return actions.lastChild;
}

// scroll along only if the end is in view
function scroll(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function headers() {
  const found = {"Content-Type": "application/json"};
  if ($("key").value) found.Authorization = "Bearer " + $("key").value;
  return found;
}

function body() {
  const system = $("system").value.trim();
  const said = messages.map(({role, content}) => ({role, content}));
  const wanted = {messages: system ? [{role: "system", content: system}, ...said] : said,
                  stream: true, stream_options: {include_usage: true}};
  if ($("temperature").value) wanted.temperature = Number($("temperature").value);
  if ($("max-tokens").value) wanted.max_tokens = Number($("max-tokens").value);
  return JSON.stringify(wanted);
}

async function failure(answer) {
  const text = await answer.text();
  try { return JSON.parse(text).error.message; } catch { return `${answer.status}: ${text}`; }
}

// the JSON objects of a stream of server-sent events, then null if it is complete
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
      if (line.trim() === "data: [DONE]") yield null;
    }
  }
}

function busy(is) {
  send.hidden = is;
  stop.hidden = !is;
  log.setAttribute("aria-busy", String(is));
}

// a reply as it is received; throws an Error, also if the stream ends early
async function receive(own, said, change) {
  let isComplete = false;
  const answer = await fetch("/v1/chat/completions",
    {method: "POST", headers: headers(), body: body(), signal: own.signal});
  if (!answer.ok) throw new Error(await failure(answer));
  for await (const event of events(answer)) {
    if (event === null) {
      isComplete = true;
      continue;
    }
    if (event.error) throw new Error(event.error.message);
    said.usage = event.usage ?? said.usage;
    const choice = event.choices[0];
    if (!choice) continue;
    said.ended = choice.finish_reason ?? said.ended;
    change(choice.delta.reasoning_content ?? "", choice.delta.content ?? "");
  }
  if (!isComplete) throw new Error("The stream ended early: the reply may be incomplete.");
}

async function reply() {
  running = new AbortController();
  const own = running;
  busy(true);
  const message = addMessage("assistant", "");
  const view = new MarkdownView(placeOf(message));
  const said = {role: "assistant", content: "", reasoning: "", ended: "", usage: null};
  let reasoning = null, error = "";
  const started = performance.now();
  const unfinished = () => keep(said.content ? [ended(said, "stopped")] : []);
  window.addEventListener("pagehide", unfinished);
  try {
    await receive(own, said, (thought, text) => scroll(() => {
      if (thought) {
        reasoning ??= addReasoning(message);
        reasoning.append(thought);
        said.reasoning += thought;
      }
      if (text) view.update(said.content += text);
    }));
  } catch (caught) {
    if (!own.signal.aborted) error = caught.message || String(caught);
  }
  window.removeEventListener("pagehide", unfinished);
  if (running === own) running = null;
  if (!message.isConnected) return;  // another chat was started
  const seconds = (performance.now() - started) / 1000;
  const isKept = said.content || !(error || own.signal.aborted);
  scroll(() => {
    if (isKept) {
      messages.push(ended(said, error ? "ended early" : noteOf(said, own, seconds)));
      addEnd(message, messages.at(-1));
    } else {
      takeBack(message);
    }
    if (error) addMessage("error", error);
  });
  keep();
  busy(false);
  inputChanged();
  input.focus();
}

function ended({role, content, reasoning}, note) {
  return {role, content, reasoning, note};
}

function noteOf({ended, usage}, own, seconds) {
  if (own.signal.aborted) return "stopped";
  if (ended === "length") return "reached the maximum length";
  const speed = count => `${count} tokens, ${(count / seconds).toFixed(1)}/s`;
  return usage ? speed(usage.completion_tokens) : "";
}

// a message without a reply can be sent again, before what was written meanwhile
function takeBack(message) {
  const last = messages.pop();
  if (message.matches(".assistant")) message.previousElementSibling?.remove();
  message.remove();
  input.value = [last.content, input.value].filter(text => text).join("\n");
}

function submit() {
  const text = input.value.trim();
  if (!text || running) return;
  for (const old of log.querySelectorAll(".error")) old.remove();
  messages.push({role: "user", content: text});
  addMessage("user", text);
  keep();
  input.value = "";
  inputChanged();
  log.scrollTop = log.scrollHeight;
  reply();
}

// the input has another text
function inputChanged() {
  store(DRAFT, input.value);
  input.style.height = "auto";
  input.style.height = input.scrollHeight + 2 + "px";
}

$("form").addEventListener("submit", event => { event.preventDefault(); submit(); });
input.addEventListener("input", inputChanged);
input.addEventListener("keydown", event => {
  // during composition by an input method, Enter selects a character
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  }
});
stop.addEventListener("click", () => running?.abort());
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && !$("settings").open) running?.abort();
});
$("new").addEventListener("click", () => {
  running?.abort();
  running = null;
  messages = [];
  keep();
  log.replaceChildren();
  busy(false);
  input.focus();
});
$("open-settings").addEventListener("click", () => $("settings").showModal());

async function nameModel() {
  try {
    const answer = await fetch("/v1/models", {headers: headers()});
    if (answer.status === 401) return $("settings").showModal();
    const name = (await answer.json()).data[0].id;
    $("model").textContent = document.title = name;
  } catch {
    addMessage("error", "The server does not answer.");
  }
}
$("key").addEventListener("change", nameModel);
restore();
inputChanged();
nameModel();
