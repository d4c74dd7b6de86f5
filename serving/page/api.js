// Requests to the server. What goes wrong is an Error whose message is shown as it is.

/** The requests that were answered, for `showRequests`, which empties the list: route, body, and whether with a token. */
export const sent = [];

const TOKEN = "token"; // where the tab keeps it
const LOST = "The server does not answer. Is it still running?";
const LOCKED = "The server answers only those who have its token. Load the page again to give it.";

/** The JSON answer of a route; body: an object to POST, undefined to GET. */
export async function ask(route, body, signal) {
  return (await send(route, body, signal)).json();
}

/** The lines of JSON of a route, while they come; a line with an error is an Error. */
export async function* lines(route, body, signal) {
  const reader = (await send(route, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Error(LOST);
    });
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) {
      const line = JSON.parse(part);
      if (line.error) throw new Error(inWords(line.error));
      yield line;
    }
  }
}

async function send(route, body, signal) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(route, { ...post, headers, signal }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error(LOST);
  });
  if (answer.ok) {
    if (body !== undefined) sent.push({ route, body, locked: Boolean(token) });
    return answer;
  }
  if (answer.status === 401) {
    const given = await askForToken(token ? "The server does not know this token." : "");
    if (!given) throw new Error(LOCKED);
    sessionStorage.setItem(TOKEN, given.replace(/[^!-~]/g, "?")); // a header holds no other characters, nor does a token
    return send(route, body, signal);
  }
  const { error = `The server answered with status ${answer.status}` } = await answer.json().catch(() => ({}));
  const wait = answer.headers.get("Retry-After");
  throw new Error(inWords(error) + (wait ? ` Try again in ${wait} s.` : ""));
}

/** A reason of the server as a sentence. It may begin with the name of a field, which stays as it is. */
function inWords(reason) {
  return /[.!?]$/.test(reason) ? reason : `${reason}.`;
}

/** The token that is typed into the form; "": it was closed. */
function askForToken(reason) {
  const dialog = document.querySelector("#access");
  const field = dialog.querySelector("input");
  field.value = "";
  dialog.querySelector(".error").textContent = reason;
  dialog.querySelector(".error").hidden = !reason;
  dialog.returnValue = "";
  dialog.showModal();
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    dialog.close(field.value.trim());
  };
  return new Promise((resolve) => (dialog.onclose = () => resolve(dialog.returnValue)));
}
