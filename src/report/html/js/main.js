// Hangs every chart in its place. A chart that fails says so there, and does not take the others with it.

const CHARTS = { timeline: timelineChart, causes: causesChart, map: mapChart, latency: latencyChart, convergence: convergenceChart };
const causeNames = [...document.querySelectorAll('dl.causes dt')].map((node) => node.textContent);
const files = JSON.parse(document.getElementById('data').textContent);

files.forEach((file, index) => {
  file.runs.forEach((run, row) => { run.colour = `--run-${index}-${row}`; });
  for (const article of document.querySelectorAll(`[data-file="${index}"] [data-chart]`)) {
    const root = article.querySelector('.chart');
    try {
      CHARTS[article.dataset.chart](root, file, causeNames);
      article.dataset.state = 'drawn';
    } catch (error) {
      article.dataset.state = 'failed';
      root.append(el('p', { class: 'empty' }, `This chart cannot be drawn: ${error.message}`));
      console.error(error);
    }
  }
});
addEventListener('scroll', hideTip, { passive: true });
