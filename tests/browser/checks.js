// What a page must hold, as functions that return what breaks it.

// Texts that are smaller than 12 px.
function smallText() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const size = parseFloat(getComputedStyle(walker.currentNode.parentElement).fontSize);
    if (walker.currentNode.data.trim() && size < 12) found.push(walker.currentNode.data);
  }
  return found;
}

// Texts whose contrast with what is behind them is below 4.5 (WCAG AA).
function faintText() {
  const parts = (color) => color.match(/[\d.]+/g).map(Number);
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [red, green, blue] = parts(color).map((part) => linear(part / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((parts(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const hasText = (element) => [...element.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  const texts = [...document.querySelectorAll("main *, header *, nav *")].filter(
    (element) => !element.closest("svg") && element.checkVisibility() && hasText(element),
  );
  return texts.filter((element) => {
    const [one, other] = [light(getComputedStyle(element).color), light(behind(element))];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05) < 4.5;
  }).map((element) => element.outerHTML.slice(0, 80));
}
