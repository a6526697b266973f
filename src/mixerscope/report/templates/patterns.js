// What heads attend to, and how large states are: in the example document, and between roles over all documents.
const headName = (one, several) => `block ${one.block}${several ? `, head ${one.head}` : ""}`;
choices.attention = [{ name: "of", label: "in", options: (holder) => {
  const { heads, n } = page.details.models[holder.dataset.model].patterns;
  return [...(heads[0].rows ? [["example", "one document"]] : []), ["roles", `the mean of ${n} documents, by role`]];
} }];

kinds.attention = (holder, width) => {
  const { patterns } = page.details.models[holder.dataset.model];
  const { heads, tokens, roles, looking, n } = patterns;
  const several = heads.some((one) => one.head > 0);
  const byRole = chosenValue(holder, "of") === "roles" || !heads[0].rows;
  const names = Object.keys(roles);
  const at = (position) => names.find((role) => roles[role] === position) ?? "";
  const rowNames = byRole ? names : looking.map((i) => (at(i) ? `${at(i)} ${tokens[i]}` : tokens[i])), columnNames = byRole ? names : tokens;
  const gutter = 10 + Math.max(...rowNames.map((s) => wide(s, 10)));
  const most = byRole ? 46 : 26;
  const panels = Math.max(1, Math.min(heads.length, Math.floor(width / (gutter + Math.min(most, byRole ? 30 : 11) * columnNames.length + 12))));
  const cell = Math.max(3, Math.min(most, ((width - 4) / panels - gutter - 12) / columnNames.length));
  const one = gutter + cell * columnNames.length + 12;
  const labelled = cell >= 10;
  const below = labelled || byRole ? 10 + 0.8 * Math.max(...columnNames.map((s) => wide(s, 10))) : 14;
  const tall = 24 + cell * rowNames.length + below;
  const told = heads.map((h) => `${headName(h, several)}: ${names.flatMap((a) => Object.entries(h.between[a] ?? {}).filter(([, e]) => e[0] > 0.2).map(([b, e]) => `${a} to ${b} ${e[0].toFixed(2)}`)).join(", ") || "nothing above 0.2"}`);
  const svg = canvas(width, tall * Math.ceil(heads.length / panels), `Attention of ${page.overview.models[holder.dataset.model].label}, mean weights between roles. ${told.join("; ")}.`);
  const rows = [];
  heads.forEach((head, k) => {
    const left = (k % panels) * one + gutter, top = Math.floor(k / panels) * tall + 24;
    svg.append(words(left, top - 8, headName(head, several), { class: "soft-text" }));
    rowNames.forEach((name, i) => {
      const position = byRole ? null : looking[i];
      if (cell >= 9 || (!byRole && at(position))) svg.append(words(left - 5, top + (i + 0.5) * cell + 3.5, name, { "text-anchor": "end", class: byRole || at(position) ? "small-text" : "small-text soft-text" }));
      columnNames.forEach((seen, j) => {
        const weight = byRole ? head.between[name]?.[seen] : head.rows[i][j];
        if (weight === undefined) return;
        const value = byRole ? weight[0] : weight / 1000;
        const where = byRole ? `${name} looks at ${seen}` : `${name} looks at ${seen}${at(j) ? ` (${at(j)})` : ""}`;
        const pair = byRole ? null : head.between[at(position)]?.[at(j)];
        const mean = byRole ? weight : pair;
        const tip = `${headName(head, several)}: ${where}\nweight ${format.number(value)}${byRole ? ` [${format.number(weight[1])}, ${format.number(weight[2])}], n = ${weight[3]}` : ""}${pair ? `\nmean ${estimated(pair, format.number)}` : ""}`;
        svg.append(node("rect", { x: left + j * cell, y: top + i * cell, width: cell, height: cell, class: `weight ${ramp(value)}`, "data-tip": tip }));
        if (byRole && cell >= 30) svg.append(words(left + (j + 0.5) * cell, top + (i + 0.5) * cell + 4, value.toFixed(2), { "text-anchor": "middle", class: `cell-text ${value > 0.6 ? "on-strong" : "on-weak"}` }));
        rows.push({ block: head.block, head: head.head, looking: byRole ? name : tokens[position], looking_position: position, looking_role: byRole ? name : at(position), seen, seen_position: byRole ? null : j, seen_role: byRole ? seen : at(j), weight: value, mean: mean?.[0], low: mean?.[1], high: mean?.[2], n: mean?.[3] });
      });
    });
    columnNames.forEach((name, j) => {
      if (!labelled && !byRole && !at(j)) return;
      const [x, y] = [left + (j + 0.5) * cell + 3, top + rowNames.length * cell + 9];
      svg.append(words(x, y, name, { transform: `rotate(-50 ${x} ${y})`, "text-anchor": "end", class: byRole || at(j) ? "small-text" : "small-text soft-text" }));
    });
  });
  return { svg, rows, note: `A row looks at its columns, from 0 (light) to 1 (dark).${byRole ? "" : ` The first measured document; the mean over ${n} stands beside each number where both positions have a role.`}` };
};

kinds.norms = (holder, width) => {
  const { patterns } = page.details.models[holder.dataset.model];
  const { states, tokens, roles } = patterns;
  const names = Object.keys(roles), at = (position) => names.find((role) => roles[role] === position) ?? "";
  const height = 190, left = 40, right = width - 8, top = 10, floor = height - 44;
  const highest = Math.max(...states.flatMap((one) => one.norms)) || 1;
  const x = scale([0, tokens.length - 1 || 1], [left + 10, right - 10]), y = scale([0, highest], [floor, top]);
  const svg = canvas(width, height, `Norm of the state after each token. ${states.map((one) => `block ${one.block}, ${one.size} numbers: from ${format.number(one.norms[0])} to ${format.number(one.norms.at(-1))}`).join("; ")}.`);
  svg.append(yAxis(ticks(0, highest, 4), y, left, right, String));
  const room = (right - left) / tokens.length;
  tokens.forEach((token, i) => {
    if (room < 22 && !at(i)) return;
    svg.append(words(x(i), floor + 15, token, { "text-anchor": "middle", class: at(i) ? "small-text strong-text" : "small-text soft-text" }));
  });
  staggered(names.map((role) => ({ x: x(roles[role]), text: role })).sort((a, b) => a.x - b.x))
    .forEach((l) => svg.append(words(Math.min(l.x, right - wide(l.text) / 2), floor + 28 + 12 * l.line, l.text, { "text-anchor": "middle", class: "soft-text small-text" })));
  const rows = [];
  states.forEach((one, k) => {
    svg.append(node("polyline", { points: one.norms.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" "), class: `line ${lineClass(k)}` }));
    one.norms.forEach((v, i) => {
      const mean = one.at[at(i)];
      const tip = `block ${one.block}, after ${tokens[i]}${at(i) ? ` (${at(i)})` : ""}\nnorm ${format.number(v)}${mean ? `\nmean after the ${at(i)} ${estimated(mean, format.number)}` : ""}`;
      svg.append(shape("circle", x(i), y(v), 3.5, { class: `point ${lineClass(k)}`, "data-tip": tip }));
      rows.push({ block: one.block, numbers: one.size, position: i, token: tokens[i], role: at(i), norm: v, mean: mean?.[0], low: mean?.[1], high: mean?.[2], n: mean?.[3] });
    });
  });
  return { svg, rows, keys: legend(states.map((one, k) => lineKey(k, `block ${one.block}: ${format.thousands(one.size)} numbers`))), note: "Euclidean norm of what crosses to the next position, after each token of the first measured document." };
};
