// The numbers that the page shows. An expression, for the tests to evaluate.
({
  figures: Object.fromEntries(
    [...document.querySelectorAll("#figures tr")].map((row) => [
      row.dataset.scheme,
      Object.fromEntries(
        [...row.querySelectorAll("td[data-by]")].map((cell) => [
          cell.dataset.by,
          [Number(cell.dataset.seconds), cell.textContent],
        ]),
      ),
    ]),
  ),
  wrong: Object.fromEntries(
    [...document.querySelectorAll("#cost tr")].map((row) => [
      row.dataset.scheme,
      [...row.querySelectorAll("td")].map((cell) =>
        cell.dataset.slower === undefined ? null : Number(cell.dataset.slower),
      ),
    ]),
  ),
  map: [...document.querySelectorAll("#map-body tr")].map((row) =>
    [...row.querySelectorAll("td")].map((cell) => cell.textContent.slice(0, 1)),
  ),
  verdict: document.getElementById("verdict").textContent,
});
