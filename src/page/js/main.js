// Hangs every chart in its place.

const CHARTS = { card: cardChart, timeline: timelineChart, causes: causesChart, map: mapChart, latency: latencyChart, convergence: convergenceChart };
const LIVES_CHARTS = { bands: bandsChart, state: stateChart };
const causeNames = [...document.querySelectorAll('dl.causes dt')].map((node) => node.textContent);
const files = JSON.parse(document.getElementById('data').textContent);

const articles = (index, charts) => [...document.querySelectorAll(`[data-file="${index}"] [data-chart]`)]
  .filter((article) => article.dataset.chart in charts);

files.forEach((file, index) => {
  file.runs.forEach((run, row) => { run.colour = `--run-${index}-${row}`; });
  for (const article of articles(index, CHARTS)) {
    hang(article, (root) => CHARTS[article.dataset.chart](root, file, causeNames));
  }
});

// Every block: the rest of the page is there before.
const hangLives = async (file, index) => {
  const places = articles(index, LIVES_CHARTS);
  try {
    const lives = await decodeLives(file.lives, document.getElementById(`lives-${index}`).textContent);
    const session = newSession(lives);
    for (const article of places) {
      article.querySelector('.waiting').remove();
      hang(article, (root) => LIVES_CHARTS[article.dataset.chart](root, lives, session));
    }
  } catch (error) {
    places.forEach((article) => hang(article, () => { throw error; }));
  }
};
addEventListener('DOMContentLoaded', async () => {
  for (const [index, file] of files.entries()) if (file.lives) await hangLives(file, index);
});
addEventListener('scroll', hideTip, { passive: true });
