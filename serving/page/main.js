// Asks the server what its model can do, and shows the tabs that work for it.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { setUp as setUpFill } from "./fill.js";
import { setUp as setUpScore } from "./score.js";
import { TASKS, setUp as setUpTask } from "./tasks.js";
import { setUp as setUpWrite } from "./write.js";

const bar = document.querySelector("#tabs");
const card = document.querySelector("#card");

function tab(id, title) {
  const panel = document.getElementById(id);
  const button = element("button", { id: `tab-${id}`, role: "tab", "aria-controls": id }, title);
  button.addEventListener("click", () => choose(button));
  bar.append(button);
  return panel;
}

function choose(chosen) {
  for (const button of bar.children) {
    button.setAttribute("aria-selected", button === chosen);
    button.tabIndex = button === chosen ? 0 : -1;
    document.getElementById(button.getAttribute("aria-controls")).hidden = button !== chosen;
  }
  card.hidden = true;
}

bar.addEventListener("keydown", (event) => {
  const buttons = [...bar.children];
  const at = buttons.indexOf(document.activeElement);
  const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 };
  const to = buttons[(steps[event.key] + buttons.length) % buttons.length];
  if (!to) return;
  event.preventDefault();
  choose(to);
  to.focus();
});

try {
  const model = await ask("/model");
  const can = (route) => model.routes.includes(route);
  const sampling = can("/stream") ? await ask("/sampling") : [];
  const write = () => can("/stream") && setUpWrite(tab("write", "Write"), model, sampling, card);
  if (!model.note) write();
  if (can("/fill")) setUpFill(tab("fill", "Fill blanks"), model);
  if (can("/score")) setUpScore(tab("score", "Score"), model, card);
  if (model.note) write(); // last, since it is not what the model was trained for
  const task = Object.keys(TASKS).find(can);
  if (task) setUpTask(tab("task", TASKS[task].title), task, model);
  document.querySelector("#about").textContent = `The server has ${model.title}: ${model.name}, step ${model.step ?? "unknown"}.`;
  bar.hidden = false;
  choose(bar.children[0]);
} catch (error) {
  const failure = document.querySelector("#failure");
  failure.textContent = error.message;
  failure.hidden = false;
  document.querySelector("#about").textContent = "";
}
