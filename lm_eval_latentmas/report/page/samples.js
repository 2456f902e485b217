"use strict";
// The sample browser. Texts of models and data sets enter the page as text nodes only.
(() => {
  const PAGE = 25;
  const data = JSON.parse(document.getElementById("sample-data").textContent);
  const field = (id) => document.getElementById(id);
  let found = [];
  let start = 0;

  const element = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const options = (select, names, chosen) => {
    select.replaceChildren(...names.map((name, index) => new Option(name, index, false, index === chosen)));
  };

  // per task and arm: the answers of each document, made when first asked for
  const cache = new Map();
  const answersOf = (task, arm) => {
    const key = `${task} ${arm}`;
    if (!cache.has(key)) {
      const byDocument = new Map();
      for (const run of data.tasks[task].answers) {
        if (run.arm !== arm) continue;
        run.document.forEach((document, row) => {
          if (!byDocument.has(document)) byDocument.set(document, []);
          byDocument.get(document).push({ run, row });
        });
      }
      cache.set(key, byDocument);
    }
    return cache.get(key);
  };
  const meanScore = (answers) => {
    const known = (answers || []).map(({ run, row }) => run.score[row]).filter((score) => score !== null);
    return known.length ? known.reduce((sum, score) => sum + score, 0) / known.length : null;
  };
  const isRight = (score) => (score === null ? null : score >= 0.5);

  const wanted = {
    all: () => true,
    lost: (first, second) => first === true && second === false,
    won: (first, second) => first === false && second === true,
    right: (first, second) => first === true && second === true,
    wrong: (first, second) => first === false && second === false,
    truncated: (first, second, answers) => answers.some(({ run, row }) => run.truncated[row]),
  };
  const chosen = () => ({
    task: Number(field("task").value),
    first: Number(field("first").value),
    second: Number(field("second").value),
    show: field("show").value,
    find: field("find").value.trim().toLowerCase(),
  });

  const search = () => {
    const { task, first, second, show, find } = chosen();
    if (!data.tasks[task]) return;
    const [ours, theirs] = [answersOf(task, first), answersOf(task, second)];
    found = [];
    data.tasks[task].documents.forEach((document, index) => {
      const answers = [...(ours.get(index) || []), ...(first === second ? [] : theirs.get(index) || [])];
      const scores = [meanScore(ours.get(index)), meanScore(theirs.get(index))];
      if (!wanted[show](isRight(scores[0]), isRight(scores[1]), answers)) return;
      const holds = (text) => text.toLowerCase().includes(find);
      if (find && !holds(document.question) && !answers.some(({ run, row }) => holds(run.text[row]))) return;
      found.push({ index, document, scores });
    });
    start = 0;
    draw();
  };

  const verdict = (score) => {
    const right = isRight(score);
    const text = score === null ? "no score" : String(Math.round(score * 100) / 100);
    return element("span", text, `verdict ${right === null ? "" : right ? "right" : "wrong"}`);
  };
  const summary = (item) => {
    const line = element("summary");
    line.append(element("span", `#${item.document.id}`), element("span", item.document.question, "question"));
    line.append(...item.scores.map(verdict));
    return line;
  };
  const draw = () => {
    const shown = found.slice(start, start + PAGE);
    field("list").replaceChildren(
      ...shown.map((item) => {
        const box = element("details");
        box.append(summary(item));
        box.addEventListener("toggle", () => box.childElementCount > 1 || box.append(inside(item)), { once: true });
        return box;
      }),
    );
    const all = data.tasks[chosen().task].documents.length;
    field("count").textContent = `${found.length} of ${all} documents`;
    field("where").textContent = found.length ? `${start + 1} to ${start + shown.length}` : "";
    field("back").disabled = start === 0;
    field("next").disabled = start + PAGE >= found.length;
  };

  const titled = (title, small, body) => {
    const part = element("div");
    const head = element("h3", title);
    if (small) head.append(" ", element("small", small));
    part.append(head, body);
    return part;
  };
  const inside = ({ index, document }) => {
    const task = chosen().task;
    const body = element("div", undefined, "inside");
    body.append(titled("Question", "", element("pre", document.question)));
    body.append(titled("Expected", "", element("pre", document.target)));
    body.append(prompts(task, document));
    const { first, second } = chosen();
    const pair = new Set([first, second]);
    body.append(answers(task, index, [...pair]));
    const others = answers(task, index, [...data.arms.keys()].filter((arm) => !pair.has(arm)));
    if (others.childElementCount) {
      const box = element("details");
      box.append(element("summary", "Other arms"), others);
      body.append(box);
    }
    return body;
  };
  const answers = (task, document, arms) => {
    const box = element("div", undefined, "answers");
    for (const arm of arms) {
      for (const { run, row } of answersOf(task, arm).get(document) || []) box.append(answer(arm, run, row));
    }
    return box;
  };
  // what the agents of the chosen arms were shown, once where both arms were shown the same
  const prompts = (task, document) => {
    const box = element("details");
    const shown = (text) => (text === null ? document.question : text);
    const { first, second } = chosen();
    const told = data.tasks[task].prompts
      .map(({ arms, agents }) => ({ arms: arms.filter((arm) => arm === first || arm === second), agents }))
      .filter(({ arms }) => arms.length);
    const count = told.reduce((sum, { agents }) => sum + agents.length, 0);
    box.append(element("summary", count ? `${count} prompt${count > 1 ? "s" : ""}` : "Prompt"));
    if (!count) box.append(element("pre", shown(document.prompt)));
    for (const { arms, agents } of told) {
      const whose = told.length > 1 ? arms.map((arm) => data.arms[arm]).join(", ") : "";
      agents.forEach((agent, place) => {
        const question = shown(place === agents.length - 1 ? document.asked : document.prompt);
        box.append(titled(agent.name, whose, element("pre", agent.prompt.split("{question}").join(question))));
        box.append(...keptTokens(task, document, agent.name, arms));
      });
    }
    return box;
  };
  // per arm: the agent's prompt, its tokens shaded by the share of layers and heads that kept them
  const keptTokens = (task, document, agent, arms) => {
    const told = data.tasks[task].kept.filter((kept) => kept.id === document.id && kept.agent === agent);
    return told.filter((kept) => arms.includes(kept.arm)).map((kept) => {
      const text = element("pre");
      kept.tokens.forEach((token, place) => {
        const span = element("span", token, "token");
        span.style.backgroundColor = `rgba(224, 138, 30, ${kept.share[place]})`;
        span.title = `kept by ${Math.round(100 * kept.share[place])}% of heads`;
        text.append(span);
      });
      return titled(`kept by ${data.arms[kept.arm]}`, "darker: by more layers and heads", text);
    });
  };
  const answer = (arm, run, row) => {
    const said = [`seed ${run.seed}`, `score ${run.score[row] === null ? "none" : run.score[row]}`];
    if (run.read[row] && run.read[row] !== run.text[row]) said.push(`read as ${run.read[row]}`);
    if (run.tokens[row] !== null) said.push(`${run.tokens[row]} tokens`);
    if (run.truncated[row]) said.push("cut off");
    return titled(data.arms[arm], said.join(", "), element("pre", run.text[row]));
  };

  options(field("task"), data.tasks.map((task) => task.name), 0);
  options(field("first"), data.arms, data.reference);
  options(field("second"), data.arms, data.arms.length > 1 ? Number(data.reference === 0) : 0);
  field("choose").addEventListener("submit", (event) => event.preventDefault());
  field("choose").addEventListener("input", search);
  field("back").addEventListener("click", () => { start -= PAGE; draw(); });
  field("next").addEventListener("click", () => { start += PAGE; draw(); });
  search();
})();
