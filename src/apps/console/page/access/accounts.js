/** Shows and edits credits, API keys, workspaces, provider keys and end users through the management API. */
import { count, usd } from '../format.js'
import { Field, FormDialog } from '../forms.js'
import { html, useState } from '../html.js'
import { useNames } from '../names.js'
import { Figure, useView, Waiting } from '../parts.js'
import { Credentials } from './credentials.js'
import { EndUsers } from './end-users.js'
import { Keys } from './keys.js'
import { Workspaces } from './workspaces.js'

/** Sums over the ledger need not be refreshed often. */
const POLL_INTERVAL_MS = 10_000

export function Accounts({ calls }) {
  // Changes after each edit here, so that lists are read again.
  const [version, setVersion] = useState(0)
  const names = useNames(calls, version)
  const onChanged = () => setVersion(now => now + 1)
  const shared = { calls, names, version, onChanged: onChanged }
  return html`
    <${Credits} calls=${calls} />
    <${Keys} ...${shared} />
    <${Workspaces} ...${shared} />
    <${Credentials} ...${shared} />
    <${EndUsers} ...${shared} />
  `
}

function Credits({ calls }) {
  const { document, error } = useView(calls, 'credits', {}, POLL_INTERVAL_MS)
  const [isOpen, setOpen] = useState(false)
  if (document === null) return html`<${Waiting} error=${error} />`
  const { total_credits: total, total_usage: used, today } = document.data
  const add = async ({ amount, note }) => {
    await calls.api('POST', 'credits', { body: { amount: Number(amount), ...(note === '' ? {} : { note }) } })
    setOpen(false)
  }
  return html`
    <section aria-labelledby="credits-heading">
      <div class="bar">
        <h2 id="credits-heading">Credits</h2>
        <button type="button" onClick=${() => setOpen(true)}>Add credits</button>
      </div>
      <dl class="figures">
        <${Figure} name="Spent today" value=${usd(today.usage)} />
        <${Figure} name="Requests today" value=${count(today.requests)} />
        <${Figure} name="Total used" value=${usd(used)} />
        ${
          total !== 0 &&
          html`
            <${Figure} name="Credits" value=${usd(total)} />
            <${Figure} name="Left" value=${usd(total - used)} title="Applies only if credits.enforced is true" />
          `
        }
      </dl>
      ${
        isOpen &&
        html`
          <${FormDialog} title="Add credits" send="Add" onSend=${add} onClose=${() => setOpen(false)}>
            <${Field} label="Amount in USD" name="amount" type="number" step="0.000001" required hint="A negative amount deducts credits" />
            <${Field} label="Note" name="note" maxlength="1000" />
          <//>
        `
      }
    </section>
  `
}
