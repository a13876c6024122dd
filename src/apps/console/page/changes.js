/** Changes made by management operations, newest first: who made them, to what, and from where. */
import { dateTime, text } from './format.js'
import { html, useState } from './html.js'
import { useNames } from './names.js'
import { Empty, PAGE, Pages, Table, useApi, Waiting } from './parts.js'

const POLL_INTERVAL_MS = 10_000
const COLUMNS = ['Time', 'Change', 'Of', 'Id', 'By', 'From']

export function Changes({ calls }) {
  const [offset, setOffset] = useState(0)
  const names = useNames(calls)
  const { document, error } = useApi(calls, 'audit', { offset, limit: PAGE }, { everyMs: POLL_INTERVAL_MS })
  if (document === null) return html`<${Waiting} error=${error} />`
  const { data, total_count: total } = document
  return html`
    <section aria-labelledby="changes-heading">
      <h2 id="changes-heading">Changes</h2>
      ${
        data.length === 0
          ? html`<${Empty}>No changes yet.<//>`
          : html`<${Table} label="Changes, newest first" columns=${COLUMNS}>
              ${data.map(change => html`<${Row} key=${change.id} change=${change} names=${names} />`)}
            <//>`
      }
      <${Pages} label="changes" offset=${offset} total=${total} onOffset=${setOffset} />
      <p class="dim">Changes of the configuration file are not listed.</p>
    </section>
  `
}

function Row({ change: { time, action, object, actor_label: label, client_address: address }, names }) {
  const actor = nameOfLabel(names, label)
  return html`
    <tr>
      <td>${dateTime(time)}</td>
      <td class="word">${action}</td>
      <th scope="row">${text(object.name)}</th>
      <td class="mono" title=${object.id}>${shortId(object.id)}</td>
      <td>${actor !== null && html`${actor} `}<span class="dim mono">${label}</span></td>
      <td class="word">${text(address)}</td>
    </tr>
  `
}

/** The beginning is enough to distinguish hashes; the full id is in the title. */
const MAX_ID_CHARS = 40

function shortId(id) {
  return id.length <= MAX_ID_CHARS ? id : `${id.slice(0, 16)}…`
}

/** The name of the key that has this label now; null: none, for example because it was rotated or deleted. */
function nameOfLabel(names, label) {
  for (const key of names.keys.values()) if (key.label === label) return key.name
  return null
}
