(function () {
  "use strict";
  var form = document.getElementById("filters");
  var rows = Array.prototype.slice.call(document.querySelectorAll("[data-row]"));
  var count = document.getElementById("shown");

  function matches(row, name, wanted) {
    var value = row.getAttribute("data-" + name);
    return !wanted || value === null || value === wanted;
  }

  function apply() {
    var shown = 0;
    rows.forEach(function (row) {
      var keep =
        matches(row, "arm", form.elements.arm.value) &&
        matches(row, "suite", form.elements.suite.value) &&
        matches(row, "c", form.elements.c.value) &&
        !(form.elements.flips.checked && row.getAttribute("data-flips") === "0");
      row.hidden = !keep;
      shown += keep ? 1 : 0;
    });
    count.textContent = shown === rows.length ? "" : shown + " of " + rows.length + " rows shown";
  }

  form.addEventListener("change", apply);
  form.addEventListener("reset", function () { window.setTimeout(apply, 0); });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.hidden = false;
  apply();
})();
