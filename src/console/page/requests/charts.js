/** The charts above live lists: requests, failures, time to the first token and cost of the last minutes. */
import { Chart } from '../chart.js'
import { count, duration, hourAndMinute, percent, usd } from '../format.js'
import { html } from '../html.js'

/** Minutes that people choose from; the gateway keeps the last of them. */
export const RANGES = [1, 5, 15]

const NO_SPAN = { requests: 0, failed: 0, cost: 0, p50: null, p95: null }
const none = value => (value === 0 ? null : value)

/** Charts in their order: their lines, and how a value is shown. A span without requests is a gap. */
const CHARTS = [
  {
    name: 'Requests/s',
    show: count,
    lines: [{ name: 'requests', colour: '--accent', of: (span, seconds) => none(span.requests / seconds) }],
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
    kind: 'lines',
    lines: [
      { name: 'p50', colour: '--p50', of: span => span.p50 },
      { name: 'p95', colour: '--p95', of: span => span.p95 },
    ],
  },
  {
    name: 'Cost/min',
    show: usd,
    lines: [{ name: 'cost', colour: '--money', of: (span, seconds) => none((span.cost * 60) / seconds) }],
  },
]

/** All charts of the live list; rendered again when there is something new. */
export function Charts({ live, minutes }) {
  const seconds = live.spanSeconds
  const spans = Math.min(live.spansMax, (minutes * 60) / seconds)
  // The span that is under way would look like a fall.
  const until = Math.floor(live.nowSeconds() / seconds) * seconds
  const times = Array.from({ length: spans }, (_, at) => until - (spans - at) * seconds)
  return html`
    <div class="charts">
      ${CHARTS.map(({ name, show, kind, max, lines }) => {
        const drawn = lines.map(({ of, ...line }) => ({
          ...line,
          values: times.map(from => of(live.spans.get(from) ?? NO_SPAN, seconds)),
        }))
        return html`<${Chart}
          key=${name}
          name=${name}
          times=${times}
          lines=${drawn}
          kind=${kind}
          show=${show}
          clock=${hourAndMinute}
          step=${seconds}
          max=${max}
        />`
      })}
    </div>
  `
}

/** Buttons for the minutes of the charts. */
export function Range({ minutes, onMinutes }) {
  return html`
    <span class="choice" role="group" aria-label="Range of the charts">
      ${RANGES.map(
        each => html`
          <button key=${each} type="button" aria-pressed=${each === minutes} onClick=${() => onMinutes(each)}>
            ${each} min
          </button>
        `,
      )}
    </span>
  `
}
