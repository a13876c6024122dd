/** Usage as a table, and as a file with the same content. */
import { csvOf, download } from '../csv.js'
import { count } from '../format.js'
import { html, useState } from '../html.js'
import { Empty, Table } from '../parts.js'
import { DIMENSIONS, FIGURES } from './dimensions.js'

/** More rows would not help; the file contains all. */
const MAX_SHOWN_ROWS = 200
/** Columns with callers' names: requests without one are not included in the sums. */
const CALLER_NAMES = ['user', 'session', 'agent']

export function UsageTable({ rows, chosen: { columns }, names, days, onChange }) {
  const [order, setOrder] = useState(null)
  if (rows.length === 0) {
    return html`<${Empty}>
      No usage in these days${CALLER_NAMES.some(name => columns.includes(name)) ? ' with a name of that kind' : ''}.
      A request appears a second after its answer.
    <//>`
  }
  const sorted = order === null ? rows : rows.toSorted((a, b) => b[order] - a[order])
  // The columns of the last answer, while the next one is loading.
  const loadedColumns = columns.filter(column => DIMENSIONS[column].value(rows[0]) !== undefined)
  const save = () => download(`usage-${days.from}-${days.to}.csv`, csvOf(tableOf(rows, loadedColumns, names)))
  return html`
    <div class="bar">
      <button type="button" onClick=${save}>Download CSV</button>
      <span class="dim" role="status">${countText(rows)}</span>
      ${
        (columns.includes('session') || columns.includes('agent')) &&
        html`<span class="dim">Only requests that name one and still have their records.</span>`
      }
      ${columns.includes('user') && html`<span class="dim">Only requests that name an end user.</span>`}
    </div>
    <${Table}
      label="Usage"
      columns=${[
        ...loadedColumns.map(column => DIMENSIONS[column].name),
        ...Object.entries(FIGURES).map(([field, { name }]) => ({
          name,
          number: true,
          sorted: order === field,
          onSort: () => setOrder(order === field ? null : field),
        })),
      ]}
    >
      ${sorted.slice(0, MAX_SHOWN_ROWS).map(
        (row, index) => html`
          <tr key=${index}>
            ${loadedColumns.map(column => html`<${Cell} key=${column} column=${column} row=${row} names=${names} onChange=${onChange} />`)}
            ${Object.entries(FIGURES).map(([field, { show }]) => html`<td key=${field} class="number">${show(row[field])}</td>`)}
          </tr>
        `,
      )}
    <//>
  `
}

function Cell({ column, row, names, onChange }) {
  const { value, show, filter } = DIMENSIONS[column]
  const cellValue = value(row)
  if (filter === undefined || cellValue === null) return html`<td>${show(cellValue, names)}</td>`
  return html`
    <td>
      <button type="button" class="link" title="Only this one" onClick=${() => onChange({ [filter]: cellValue })}>
        ${show(cellValue, names)}
      </button>
    </td>
  `
}

function countText(rows) {
  return rows.length <= MAX_SHOWN_ROWS
    ? `${rows.length} rows`
    : `The first ${MAX_SHOWN_ROWS} of ${count(rows.length)} rows; the file has all`
}

/** The table of the file: ids, names and all values. */
export function tableOf(rows, columns, names) {
  const isNamed = column => column === 'key' || column === 'workspace'
  const header = columns.flatMap(column => (isNamed(column) ? [column, `${column}_name`] : [column]))
  return [
    [...header, ...Object.keys(FIGURES)],
    ...rows.map(row => [
      ...columns.flatMap(column => {
        const { value, show } = DIMENSIONS[column]
        const cellValue = value(row)
        return isNamed(column) ? [cellValue, show(cellValue, names)] : [cellValue]
      }),
      ...Object.keys(FIGURES).map(field => row[field]),
    ]),
  ]
}
