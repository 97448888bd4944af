// Hangs the chart of a fleet in its place.

const fleet = JSON.parse(document.getElementById('data').textContent);
fleet.allocators.forEach((run, row) => { run.colour = `--run-0-${row}`; });
hang(document.querySelector('[data-chart=shares]'), (root) => sharesChart(root, fleet));
addEventListener('scroll', hideTip, { passive: true });
