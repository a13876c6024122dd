/** Usage by day as stacked bars: the eight largest values of a dimension, and all others together. */
import { Chart } from '../chart.js'
import { colourOf } from '../colours.js'
import { dayOfSeconds } from '../format.js'
import { html } from '../html.js'
import { Figure } from '../parts.js'
import { DIMENSIONS, FIGURES } from './dimensions.js'

const DAY = 86_400
const LARGEST = 8

export function UsageChart({ rows, chosen: { by, measure }, names, from, to }) {
  const { value, show } = DIMENSIONS[by]
  const figure = FIGURES[measure]
  const first = Date.parse(from) / 1000
  const days = Math.round((Date.parse(to) / 1000 - first) / DAY) + 1
  const times = Array.from({ length: days }, (_, at) => first + at * DAY)

  const sums = new Map()
  const totals = { usage: 0, requests: 0, prompt_tokens: 0, completion_tokens: 0 }
  for (const row of rows) {
    const own = value(row) ?? null
    sums.set(own, (sums.get(own) ?? 0) + row[measure])
    for (const name of Object.keys(totals)) totals[name] += row[name]
  }
  const order = [...sums].sort(([, one], [, other]) => other - one).map(([own]) => own)
  const drawn = order.slice(0, LARGEST)
  const empty = () => Array.from({ length: days }, () => null)
  const values = new Map(drawn.map(own => [own, empty()]))
  const others = empty()
  for (const row of rows) {
    const at = Math.round((Date.parse(row.date) / 1000 - first) / DAY)
    const place = values.get(value(row) ?? null) ?? others
    if (row[measure] !== 0) place[at] = (place[at] ?? 0) + row[measure]
  }
  const lines = drawn.map(own => ({
    name: show(own, names),
    colour: colourOf(by, own),
    values: values.get(own),
    now: sums.get(own),
  }))
  if (order.length > LARGEST) {
    const now = order.slice(LARGEST).reduce((sum, own) => sum + sums.get(own), 0)
    lines.push({ name: `${order.length - LARGEST} others`, colour: '--c0', values: others, now })
  }
  return html`
    <dl class="figures">
      ${Object.entries(totals).map(
        ([name, total]) =>
          html`<${Figure} key=${name} name=${FIGURES[name].name} value=${FIGURES[name].show(total)} />`,
      )}
    </dl>
    <${Chart}
      name=${`${figure.name} by day and ${DIMENSIONS[by].name.toLowerCase()}`}
      times=${times}
      lines=${lines}
      kind="stack"
      show=${figure.short}
      clock=${dayOfSeconds}
      step=${DAY}
      height=${220}
      utc
    />
  `
}
