/** Usage by any of the dimensions, over any range in the ledger: chart, table, CSV. */
import { html, useState } from '../html.js'
import { useNames } from '../names.js'
import { useApi, Waiting } from '../parts.js'
import { UsageChart } from './usage-chart.js'
import { UsageControls } from './usage-controls.js'
import { UsageTable } from './usage-table.js'

const DAY_MS = 86_400_000

const INITIAL_CHOICE = {
  range: '30',
  from: '',
  to: '',
  by: 'model',
  measure: 'usage',
  columns: ['day', 'model'],
  model: '',
  provider: '',
  api_key_hash: '',
  workspace_id: '',
  user_id: '',
}

/** @param asked the hash of a key, as linked from the list of keys */
export function Usage({ calls, memory, asked = '' }) {
  const begin = { ...INITIAL_CHOICE, api_key_hash: asked }
  const [chosen, setChosen] = useState(asked === '' ? (memory.usage ?? INITIAL_CHOICE) : begin)
  const [version, setVersion] = useState(0)
  const names = useNames(calls)
  memory.usage = chosen
  const change = changes => setChosen(now => ({ ...now, ...changes }))

  const { model, provider, api_key_hash, workspace_id, user_id } = chosen
  const filters = Object.entries({ model, provider, api_key_hash, workspace_id, user_id })
  const { from, to } = daysOf(chosen)
  const query = {
    start_date: from,
    end_date: to,
    ...Object.fromEntries(filters.filter(([, value]) => value !== '')),
  }
  const isReady = from !== '' && to !== ''
  const useDimensions = dimensions =>
    useApi(calls, isReady ? 'activity' : null, { ...query, dimensions: dimensions.join(',') }, { version })
  const chartResult = useDimensions(['day', chosen.by])
  const tableResult = useDimensions(chosen.columns)

  return html`
    <section aria-labelledby="usage-heading">
      <h2 id="usage-heading">Usage</h2>
      <${UsageControls}
        chosen=${chosen}
        names=${names}
        days=${{ from, to }}
        onChange=${change}
        onAgain=${() => setVersion(now => now + 1)}
      />
      ${
        chartResult.document === null
          ? html`<${Waiting} error=${chartResult.error} once />`
          : html`<${UsageChart} rows=${chartResult.document.data} chosen=${chosen} names=${names} from=${from} to=${to} />`
      }
      ${chartResult.document !== null && chartResult.error !== null && html`<p class="fault" role="alert">${chartResult.error.message}</p>`}
      ${
        tableResult.document === null
          ? html`<${Waiting} error=${tableResult.error} once />`
          : html`<${UsageTable}
              rows=${tableResult.document.data}
              chosen=${chosen}
              names=${names}
              days=${{ from, to }}
              onChange=${change}
            />`
      }
      ${tableResult.document !== null && tableResult.error !== null && html`<p class="fault" role="alert">${tableResult.error.message}</p>`}
    </section>
  `
}

/** The first and the last day (UTC); empty while a custom range is incomplete. */
function daysOf({ range, from, to }) {
  if (range === 'own') return from <= to ? { from, to } : { from: to, to: from }
  const today = new Date().toISOString().slice(0, 10)
  if (range === 'month') return { from: `${today.slice(0, 8)}01`, to: today }
  const first = new Date(Date.parse(today) - (Number(range) - 1) * DAY_MS)
  return { from: first.toISOString().slice(0, 10), to: today }
}
