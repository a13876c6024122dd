/** The charts above the live list: requests, failures, time to the first token and cost over fifteen minutes. */
import UPlot from 'uplot/dist/uPlot.esm.js'
import { count, duration, percent, usd } from './format.js'
import { html, useEffect, useRef } from './html.js'

const HEIGHT = 96

/** Charts in their order: the lines, how a value is shown, and the colour of each line as a variable of the style. */
const CHARTS = [
  {
    name: 'Requests/s',
    show: count,
    lines: [{ name: 'requests', colour: '--blue', of: (span, seconds) => span.requests / seconds }],
  },
  {
    name: 'Failed',
    show: percent,
    max: 1,
    lines: [
      {
        name: 'failed',
        colour: '--red',
        of: span => (span.requests === 0 ? null : span.failed / span.requests),
      },
    ],
  },
  {
    name: 'First token',
    show: duration,
    lines: [
      { name: 'p50', colour: '--green', of: span => span.p50 },
      { name: 'p95', colour: '--orange', of: span => span.p95 },
    ],
  },
  {
    name: 'Cost/min',
    show: usd,
    lines: [{ name: 'cost', colour: '--violet', of: (span, seconds) => (span.cost * 60) / seconds }],
  },
]

const NO_SPAN = { requests: 0, failed: 0, cost: 0, p50: null, p95: null }

/** All charts of the live list. `tick` changes when there is something new. */
export function Charts({ live, tick }) {
  const seconds = live.spanSeconds
  // The span that is under way would look like a fall.
  const until = Math.floor(live.nowSeconds() / seconds) * seconds
  const times = Array.from({ length: live.spansMax }, (_, at) => until - (live.spansMax - at) * seconds)
  return html`
    <div class="charts">
      ${CHARTS.map(chart => {
        const values = chart.lines.map(({ of }) =>
          times.map(from => of(live.spans.get(from) ?? NO_SPAN, seconds)),
        )
        return html`<${Chart} key=${chart.name} chart=${chart} times=${times} values=${values} tick=${tick} />`
      })}
    </div>
  `
}

function Chart({ chart, times, values, tick }) {
  const place = useRef(null)
  const plot = useRef(null)
  const data = [times, ...values]
  const latest = useRef(data)
  latest.current = data

  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const build = () => {
      plot.current?.destroy()
      plot.current = new UPlot(optionsOf(chart, place.current), latest.current, place.current)
    }
    const fit = new ResizeObserver(() => {
      if (place.current !== null) plot.current?.setSize({ width: place.current.clientWidth, height: HEIGHT })
    })
    build()
    dark.addEventListener('change', build)
    fit.observe(place.current)
    return () => {
      dark.removeEventListener('change', build)
      fit.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [chart])

  useEffect(() => {
    plot.current?.setData(data)
  }, [tick, times.at(-1)])

  return html`
    <figure class="chart">
      <figcaption>
        <b>${chart.name}</b>${' '}
        ${chart.lines.map(({ name, colour }, at) => {
          const now = values[at].findLast(value => value !== null) ?? null
          return html`<span key=${name} class=${`value ${colour.slice(2)}`}>
            ${chart.lines.length > 1 ? `${name} ` : ''}${chart.show(now)}
          </span>`
        })}
      </figcaption>
      <div ref=${place} aria-hidden="true"></div>
    </figure>
  `
}

function optionsOf({ lines, show, max }, place) {
  const style = getComputedStyle(place)
  const colour = name => style.getPropertyValue(name).trim()
  const axis = {
    stroke: colour('--dim'),
    font: '10px system-ui, sans-serif',
    grid: { stroke: colour('--edge'), width: 1 },
    ticks: { show: false },
  }
  return {
    width: Math.max(120, place.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [6, 4, 0, 0],
    scales: { x: { time: true }, y: { range: (_, __, top) => [0, max ?? (top > 0 ? top * 1.1 : 1)] } },
    axes: [
      { ...axis, size: 18, gap: 2, space: 60, values: (_, ticks) => ticks.map(hourAndMinute) },
      { ...axis, size: 52, gap: 3, space: 28, values: (_, ticks) => ticks.map(show) },
    ],
    series: [
      {},
      ...lines.map(({ name, colour: own }) => ({
        label: name,
        stroke: colour(own),
        width: 1.5,
        points: { show: false, size: 3 },
        spanGaps: true,
      })),
    ],
  }
}

function hourAndMinute(seconds) {
  const date = new Date(seconds * 1000)
  return `${String(date.getHours()).padStart(2, '0')}:${String(date.getMinutes()).padStart(2, '0')}`
}
