/** Guardrail budgets: how much each key and member has spent, the limit, and the end of the period. */
import { dateTime, usd } from '../format.js'
import { html, useState } from '../html.js'
import { guardrailName } from '../names.js'
import { Empty, PAGE, Paged, Share, Table, useApi } from '../parts.js'

const POLL_INTERVAL_MS = 10_000
const COLUMNS = [
  'Owner',
  { name: 'Spent', number: true },
  'Of the budget',
  { name: 'Left', number: true },
  'Resets',
]

/** @param guardrails with a budget */
export function Budgets({ calls, guardrails, names }) {
  return guardrails.map(
    record =>
      html`<${Budget} key=${record.id} calls=${calls} record=${record} name=${guardrailName(names, record)} />`,
  )
}

function Budget({ calls, record, name }) {
  const [offset, setOffset] = useState(0)
  const query = { offset, limit: PAGE }
  // A changed limit is a new budget.
  const version = record.updated_at
  const list = useApi(calls, `guardrails/${record.id}/budgets`, query, {
    version,
    everyMs: POLL_INTERVAL_MS,
  })
  const heading = `budget-${record.id}`
  return html`
    <section aria-labelledby=${heading}>
      <h2 id=${heading}>Budgets of ${name}</h2>
      <${Paged}
        label="budgets"
        asked=${list}
        offset=${offset}
        onOffset=${setOffset}
        draw=${({ data, total_count: total }) =>
          total === 0
            ? html`<${Empty}>No keys have this budget yet: assign the guardrail to a key or a member.<//>`
            : html`
                <${Table} label=${`Budgets of ${name}`} columns=${COLUMNS}>
                  ${data.map(budget => html`<${Row} key=${budget.key_hash ?? `user ${budget.user_id}`} budget=${budget} />`)}
                <//>
              `}
      />
    </section>
  `
}

function Row({ budget: { user_id: user, key_name: key, spent_usd: spent, resets_at: end, ...budget } }) {
  const { limit_usd: limit, remaining_usd: left, reset_interval: reset } = budget
  return html`
    <tr>
      <th scope="row">${user === null ? key : `member ${user}`}</th>
      <td class="number">${usd(spent)}</td>
      <td><${Share} limit=${limit} left=${left} reset=${reset} label="Used of the budget" /></td>
      <td class="number">${usd(left)}</td>
      <td>${dateTime(end)}</td>
    </tr>
  `
}
