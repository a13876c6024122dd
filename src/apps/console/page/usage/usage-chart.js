/** Usage by day as stacked bars: the eight largest values of a dimension, and all others together. */
import { Chart } from '../chart.js'
import { colourOf } from '../colours.js'
import { dayOfSeconds } from '../format.js'
import { html } from '../html.js'
import { Figure } from '../parts.js'
import { DIMENSIONS, FIGURES } from './dimensions.js'

const DAY_SECONDS = 86_400
const LARGEST_COUNT = 8

export function UsageChart({ rows, chosen: { by, measure }, names, from, to }) {
  const { value, show } = DIMENSIONS[by]
  const figure = FIGURES[measure]
  const first = Date.parse(from) / 1000
  const days = Math.round((Date.parse(to) / 1000 - first) / DAY_SECONDS) + 1
  const times = Array.from({ length: days }, (_, index) => first + index * DAY_SECONDS)

  const sums = new Map()
  const totals = { usage: 0, requests: 0, prompt_tokens: 0, completion_tokens: 0 }
  for (const row of rows) {
    const dimensionValue = value(row) ?? null
    sums.set(dimensionValue, (sums.get(dimensionValue) ?? 0) + row[measure])
    for (const name of Object.keys(totals)) totals[name] += row[name]
  }
  const order = [...sums].sort(([, a], [, b]) => b - a).map(([dimensionValue]) => dimensionValue)
  const drawnValues = order.slice(0, LARGEST_COUNT)
  const empty = () => Array.from({ length: days }, () => null)
  const values = new Map(drawnValues.map(drawnValue => [drawnValue, empty()]))
  const others = empty()
  for (const row of rows) {
    const dayIndex = Math.round((Date.parse(row.date) / 1000 - first) / DAY_SECONDS)
    const series = values.get(value(row) ?? null) ?? others
    if (row[measure] !== 0) series[dayIndex] = (series[dayIndex] ?? 0) + row[measure]
  }
  const lines = drawnValues.map(drawnValue => ({
    name: show(drawnValue, names),
    colour: colourOf(by, drawnValue),
    values: values.get(drawnValue),
    now: sums.get(drawnValue),
  }))
  if (order.length > LARGEST_COUNT) {
    const now = order.slice(LARGEST_COUNT).reduce((sum, dimensionValue) => sum + sums.get(dimensionValue), 0)
    lines.push({ name: `${order.length - LARGEST_COUNT} others`, colour: '--c0', values: others, now })
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
      step=${DAY_SECONDS}
      height=${220}
      utc
    />
  `
}
