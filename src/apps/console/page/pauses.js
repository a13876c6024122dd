/** Providers out of service for a time: the list above the models, and the dialog that pauses one. */
import { dateTime, text } from './format.js'
import { Field, FormDialog } from './forms.js'
import { html, useState } from './html.js'
import { RowButton, Table, useApi } from './parts.js'

const POLL_INTERVAL_MS = 5_000
const COLUMNS = ['Provider', 'Until', 'By', 'Reason', '']
/** A week, as the API allows. */
const MAX_MINUTES = 7 * 24 * 60

const pathOf = (provider, verb) => `providers/${encodeURIComponent(provider)}/${verb}`

/** Nothing if all providers are in service. */
export function Paused({ calls, version, onChanged }) {
  const [fault, setFault] = useState(null)
  const { document } = useApi(calls, 'pauses', {}, { version, everyMs: POLL_INTERVAL_MS })
  const resume = async provider => {
    try {
      await calls.api('POST', pathOf(provider, 'resume'))
      setFault(null)
    } catch (error) {
      setFault(error)
    }
    onChanged()
  }
  if (document === null || (document.data.length === 0 && fault === null)) return null
  return html`
    <h2>Out of service</h2>
    ${fault !== null && html`<p class="fault" role="alert">${fault.message}</p>`}
    <${Table} label="Providers out of service" columns=${COLUMNS}>
      ${document.data.map(
        ({ provider, until, actor_label: actor, reason }) => html`
          <tr key=${provider}>
            <th scope="row">${provider}</th>
            <td>${dateTime(until)}</td>
            <td class="mono">${actor}</td>
            <td>${text(reason)}</td>
            <td class="actions">
              <${RowButton} does="Resume" of=${`provider ${provider}`} onClick=${() => resume(provider)} />
            </td>
          </tr>
        `,
      )}
    <//>
  `
}

export function PauseDialog({ calls, provider, onChanged, onClose }) {
  const send = async ({ minutes, reason }) => {
    await calls.api('POST', pathOf(provider, 'pause'), {
      body: { minutes: Number(minutes), ...(reason === '' ? {} : { reason }) },
    })
    onChanged()
    onClose()
  }
  return html`
    <${FormDialog} title=${`Pause ${provider}`} send="Pause" onSend=${send} onClose=${onClose}>
      <p>
        No new request goes to it, for any model and at any instance, until the time is over. Requests that are running end as they are.
      </p>
      <${Field} label="Minutes" name="minutes" type="number" min="1" max=${MAX_MINUTES} required value="30" />
      <${Field} label="Reason" name="reason" maxlength="200" hint="For the list above, such as the number of an incident" />
    <//>
  `
}
