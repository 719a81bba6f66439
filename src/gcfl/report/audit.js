// The samples of an audit. Names are only ever set as text, never as markup.
(() => {
  const block = document.getElementById("data");
  const data = JSON.parse(block.textContent);
  block.remove(); // a second copy of all that would only take memory
  const list = document.getElementById("list");
  if (!list) return;
  const find = (id) => document.getElementById(id);
  const carried = new Map(data.rows.map((row, place) => [row, place]));
  const size = data.id.length;
  const CARDS = 48; // drawn at once
  const SPARE = 8; // rows drawn above and below those in sight
  let shown = [];
  let cards = CARDS;

  const element = (kind, name, text) => {
    const made = document.createElement(kind);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // 0.9996 is not 100%.
  const percent = (parts, digits = 1) => {
    if (parts === null) return "-";
    const share = (100 * parts) / data.parts;
    const step = 10 ** -digits;
    if (share > 100 - step && share < 100) return `>${(100 - step).toFixed(digits)}%`;
    if (share > 0 && share < step) return `<${step}%`;
    return `${share.toFixed(digits)}%`;
  };
  const strange = (row) => data.strange[row] !== null && data.strange[row] >= data.strangeFrom;
  const label = (row) => data.classes[data.label[row]];
  const suggested = (row) => data.classes[data.suggested[row]];
  const truth = (row) => ({ "-1": "-", 0: "right", 1: "wrong" })[data.truth[row]];

  const columns = [
    data.sites.length > 1 && ["site", "site", (row) => data.sites[data.site[row]]],
    ["id", "id", (row) => data.id[row]],
    ["label", "label", label],
    ["suggested", "looks like", suggested],
    ["confidence", "how likely", (row) => percent(data.confidence[row])],
    ["wrong", "label wrong", (row) => percent(data.wrong[row])],
    data.strange.some((one) => one !== null)
      && ["strange", "strange", (row) => percent(data.strange[row])],
    ["evidence", "judged", (row) => data.evidence[data.evidenced[row]]],
    data.truth && ["truth", "in truth", truth],
  ].filter(Boolean);

  // Which samples are wanted, in which order.

  const chosen = (id) => {
    const asked = find(id);
    return asked && asked.value !== "" ? Number(asked.value) : null;
  };
  const choose = () => {
    const [site, observed, other] = ["by-site", "by-label", "by-suggested"].map(chosen);
    const least = Math.round((Number(find("by-wrong").value) / 100) * data.parts);
    const words = find("by-id").value.toLowerCase();
    const only = find("by-strange") && find("by-strange").checked;
    shown = [];
    for (let row = 0; row < size; row += 1) {
      if (site !== null && data.site[row] !== site) continue;
      if (observed !== null && data.label[row] !== observed) continue;
      if (other !== null && data.suggested[row] !== other) continue;
      if (least > 0 && data.wrong[row] <= least) continue;
      if (only && !strange(row)) continue;
      if (words && !data.id[row].toLowerCase().includes(words)) continue;
      shown.push(row);
    }
    if (find("sort") && find("sort").value === "strange") {
      const rank = (row) => (data.strange[row] === null ? -1 : data.strange[row]);
      shown.sort((a, b) => rank(b) - rank(a) || a - b);
    }
    find("least").textContent = `${Number(find("by-wrong").value)}%`;
    find("status").textContent = shown.length === size
      ? `All ${size.toLocaleString("en")} samples.`
      : `${shown.length.toLocaleString("en")} of ${size.toLocaleString("en")} samples.`;
    cards = CARDS;
    list.scrollTop = 0;
    drawCards();
    drawRows();
  };

  // Samples that carry their input.

  const card = (row) => {
    const made = element("figure", "card");
    const picture = data.pictures[carried.get(row)];
    if (picture) {
      const image = element("img");
      image.alt = `sample ${data.id[row]}`;
      // Few pixels are shown as squares, many are smoothed.
      image.addEventListener("load", () => {
        image.classList.toggle("coarse", image.naturalWidth < 64);
      });
      image.src = picture;
      made.append(image);
    } else made.append(element("div", "blank", "no picture"));
    const words = element("figcaption");
    const known = data.truth && data.truth[row] >= 0;
    const lines = [
      ["label: ", label(row), ""],
      ["looks like: ", suggested(row), `, ${percent(data.confidence[row], 0)}`],
      ["label wrong: ", percent(data.wrong[row], 0), known ? ` (in truth ${truth(row)})` : ""],
    ];
    lines.forEach(([before, name, after]) => {
      const line = element("p", "", before);
      line.append(element("b", "", name), after);
      words.append(line);
    });
    if (strange(row)) {
      words.append(element("p", "odd", `input stranger than ${percent(data.strange[row])}`));
    }
    const site = data.sites.length > 1 ? `${data.sites[data.site[row]]}, ` : "";
    words.append(element("p", "small", `${site}${data.id[row]}`));
    made.append(words);
    return made;
  };
  const line = (row) => {
    const made = element("tr");
    columns.forEach(([name, , text]) => made.append(element("td", name, text(row))));
    const cell = element("td", "cells");
    data.cells[carried.get(row)].forEach((text) => cell.append(element("div", "", text)));
    made.append(cell);
    return made;
  };
  if (find("heads")) {
    const titles = [...columns.map(([, title]) => title), "strangest columns"];
    titles.forEach((title) => {
      const cell = element("th", "", title);
      cell.scope = "col";
      find("heads").append(cell);
    });
  }
  const drawCards = () => {
    const room = find("cards") || find("worst");
    if (!room) return;
    const have = shown.filter((row) => carried.has(row));
    const make = room.id === "cards" ? card : line;
    room.replaceChildren(...have.slice(0, cards).map(make));
    find("more").hidden = have.length <= cards;
    find("more").textContent = `Show more of ${have.length.toLocaleString("en")}`;
    find("nothing").hidden = have.length > 0;
  };

  // All samples: a tall empty box, and in it only the rows in sight.

  const box = element("div", "box");
  const rows = element("div", "rows");
  const head = element("div", "row head");
  head.setAttribute("role", "row");
  columns.forEach(([name, title]) => {
    const cell = element("span", name, title);
    cell.setAttribute("role", "columnheader");
    head.append(cell);
  });
  rows.setAttribute("role", "rowgroup");
  box.append(rows);
  list.append(head, box);
  const wide = { site: 1.2, id: 2, label: 1.5, suggested: 1.5, truth: 0.9 };
  const widths = columns.map(([name]) => `minmax(0, ${wide[name] || 1}fr)`);
  list.style.setProperty("--columns", widths.join(" "));

  const rowOf = (place) => {
    const made = element("div", "row");
    made.setAttribute("role", "row");
    made.setAttribute("aria-rowindex", place + 2);
    columns.forEach(([name, , text]) => {
      const words = text(shown[place]);
      const cell = element("span", name, words);
      cell.setAttribute("role", "cell");
      cell.title = words; // long names are cut
      made.append(cell);
    });
    if (strange(shown[place])) made.classList.add("strange-one");
    return made;
  };
  const drawRows = () => {
    const high = parseFloat(getComputedStyle(list).getPropertyValue("--high"));
    const first = Math.max(0, Math.floor(list.scrollTop / high) - SPARE);
    const end = Math.ceil((list.scrollTop + list.clientHeight) / high) + SPARE;
    const last = Math.min(shown.length, end);
    box.style.height = `${shown.length * high}px`;
    rows.style.transform = `translateY(${first * high}px)`;
    list.setAttribute("aria-rowcount", shown.length + 1);
    const made = [];
    for (let place = first; place < last; place += 1) made.push(rowOf(place));
    rows.replaceChildren(...made);
  };

  find("filters").addEventListener("input", choose);
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("filters").addEventListener("reset", () => setTimeout(choose)); // after the reset
  find("at").addEventListener("click", () => {
    find("by-wrong").value = find("at").dataset.at;
    choose();
  });
  if (find("more")) find("more").addEventListener("click", () => { cards += CARDS; drawCards(); });
  list.addEventListener("scroll", drawRows);
  window.addEventListener("resize", drawRows);
  // A number of the table of labels shows its samples.
  document.querySelectorAll("button[data-label]").forEach((button) => {
    button.addEventListener("click", () => {
      find("filters").reset();
      find("by-label").value = button.dataset.label;
      find("by-suggested").value = button.dataset.suggested;
      choose();
      find("samples").scrollIntoView();
    });
  });
  choose();
})();
