// What is too faint beside what lies behind it, for all that is on the page (WCAG 2.2: text, 1.4.3, 4.5 to 1;
// lines, bars and borders of inputs, 1.4.11, 3 to 1). An expression, for the tests to evaluate.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (one, other) => {
    const [low, high] = [light(rgba(one)), light(rgba(other))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (rgba(colour)[3] === 255) return colour;
    }
    return "white";
  };
  const faint = [];
  let seen = 0;
  const check = (what, one, other, least) => {
    seen += 1;
    if (contrast(one, other) < least) faint.push(`${what}: ${contrast(one, other).toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.matches("script") || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const letter = element.classList.contains("letter");
    const back = letter ? getComputedStyle(element.previousElementSibling).fill : behind(element);
    check(
      `"${walker.currentNode.data.trim().slice(0, 20)}"`,
      element.namespaceURI.endsWith("svg") ? style.fill : style.color,
      back,
      4.5,
    );
  }
  for (const line of document.querySelectorAll(".line"))
    check(
      `line ${line.getAttribute("class")}`,
      getComputedStyle(line).stroke,
      behind(line.closest("div, section, th, label")),
      3,
    );
  for (const bar of document.querySelectorAll(".bar"))
    check("bar", getComputedStyle(bar).backgroundColor, behind(bar.parentElement), 3);
  for (const input of document.querySelectorAll("input[type=text], select, button"))
    check("border", getComputedStyle(input).borderTopColor, behind(input.parentElement), 3);
  return { seen, faint };
})();
