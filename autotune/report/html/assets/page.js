"use strict";
// Draws the figures, swaps their colours with the page's, and opens what a link points into.
(function () {
  const holder = document.getElementById("figures");
  const data = holder ? JSON.parse(holder.textContent) : { swaps: {}, figures: {} };
  const narrow = 560;
  const drawn = new Set();
  let failed = 0;

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  // Colours stand only under keys that name a colour; text of a job is never touched.
  function recoloured(value, key, dark) {
    if (Array.isArray(value)) return value.map((one) => recoloured(one, key, dark));
    if (value && typeof value === "object") {
      const copy = {};
      for (const [name, one] of Object.entries(value)) copy[name] = recoloured(one, name, dark);
      return copy;
    }
    const isColour = typeof value === "string" && /color/i.test(key || "");
    return isColour && dark && data.swaps[value] ? data.swaps[value] : value;
  }

  function fitted(figure, width) {
    const layout = figure.layout;
    layout.width = width;
    if (width < narrow) {
      layout.font = { ...layout.font, size: 11 };
      for (const key of Object.keys(layout)) {
        if (/^[xy]axis/.test(key)) {
          layout[key].tickfont = { ...layout[key].tickfont, size: 10 };
          if (/^x/.test(key)) layout[key].nticks = 5;
        }
      }
      for (const label of layout.annotations || []) label.font = { ...label.font, size: 10 };
      layout.margin = { ...layout.margin, r: 8 };
      layout.dragmode = false;
    }
    return figure;
  }

  function draw(place) {
    const source = data.figures[place.id];
    const width = place.clientWidth;
    if (!source || !width) return;
    const figure = fitted(recoloured(source, "", isDark()), width);
    const config = { displayModeBar: false, responsive: false, showTips: false, doubleClick: "reset" };
    drawn.add(place.id);
    Plotly.react(place, figure.data, figure.layout, config).catch((fault) => {
      failed += 1;
      console.error(place.id, fault);
    });
  }

  function drawAll() {
    document.querySelectorAll(".plot").forEach(draw);
    document.documentElement.dataset.drawn = String(drawn.size - failed);
  }

  let waiting = 0;
  let before = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === before) return; // a phone's address bar changes the height only
    before = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 120);
  });

  const button = document.getElementById("theme");
  function named() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    named();
    drawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    named();
    drawAll();
  });
  named();

  // A link to a folded section opens it.
  function openTarget() {
    const name = decodeURIComponent(location.hash.slice(1));
    const target = name ? document.getElementById(name) : null;
    const fold = target && target.querySelector(":scope > details.fold");
    if (fold) fold.open = true;
  }
  addEventListener("hashchange", openTarget);
  openTarget();
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
  });

  drawAll();
})();
