/** The charts above live lists: requests, failures, time to the first token and cost over the last minutes. */
import { Chart } from '../chart.js'
import { count, duration, hourAndMinute, percent, usd } from '../format.js'
import { html } from '../html.js'
import { useView, Waiting } from '../parts.js'

/** Selectable ranges in minutes: live ones first, then those from the ledger. */
const RANGES = [1, 5, 15, 60, 360, 1440]
const MAX_LIVE_MINUTES = 15
/** No step of the longer ranges is shorter than this. */
const LEDGER_POLL_INTERVAL_MS = 30_000

const NO_SPAN = { requests: 0, failed: 0, cost: 0, p50: null, p95: null }
const nullIfZero = value => (value === 0 ? null : value)

/** The charts in order: their lines, and the format of a value. An interval without requests is a gap. */
const CHARTS = [
  {
    name: 'Requests/s',
    show: count,
    lines: [
      { name: 'requests', colour: '--accent', of: (span, seconds) => nullIfZero(span.requests / seconds) },
    ],
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
    lines: [
      { name: 'cost', colour: '--money', of: (span, seconds) => nullIfZero((span.cost * 60) / seconds) },
    ],
  },
]

/** All charts of the last minutes. */
export function Charts({ calls, live, minutes }) {
  return minutes > MAX_LIVE_MINUTES
    ? html`<${LedgerCharts} key=${minutes} calls=${calls} minutes=${minutes} />`
    : html`<${LiveCharts} live=${live} minutes=${minutes} />`
}

/** Rendered again when there is new data. */
function LiveCharts({ live, minutes }) {
  const seconds = live.spanSeconds
  const spans = Math.min(live.spansMax, (minutes * 60) / seconds)
  // The current interval is incomplete and would look like a fall.
  const until = Math.floor(live.nowSeconds() / seconds) * seconds
  const times = Array.from({ length: spans }, (_, index) => until - (spans - index) * seconds)
  return html`<${ChartList} times=${times} spans=${live.spans} step=${seconds} />`
}

/** Includes the current interval: its rates are computed from its seconds so far. */
function LedgerCharts({ calls, minutes }) {
  const { document, error } = useView(calls, 'spans', { hours: minutes / 60 }, LEDGER_POLL_INTERVAL_MS)
  if (document === null) return html`<${Waiting} error=${error} />`
  const { first, last, step_seconds: step, spans } = document
  const times = Array.from({ length: (last - first) / step + 1 }, (_, index) => first + index * step)
  return html`<${ChartList} times=${times} spans=${new Map(spans.map(span => [span.from, span]))} step=${step} />`
}

function ChartList({ times, spans, step }) {
  return html`
    <div class="charts">
      ${CHARTS.map(({ name, show, kind, max, lines }) => {
        const drawnLines = lines.map(({ of, ...line }) => ({
          ...line,
          values: times.map(from => {
            const span = spans.get(from) ?? NO_SPAN
            return of(span, span.seconds ?? step)
          }),
        }))
        return html`<${Chart}
          key=${name}
          name=${name}
          times=${times}
          lines=${drawnLines}
          kind=${kind}
          show=${show}
          clock=${hourAndMinute}
          step=${step}
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
        range => html`
          <button key=${range} type="button" aria-pressed=${range === minutes} onClick=${() => onMinutes(range)}>
            ${range < 60 ? `${range} min` : `${range / 60} h`}
          </button>
        `,
      )}
    </span>
  `
}
