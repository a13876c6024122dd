/**
 * Batches of all workspaces with their progress. Requests and results are visible only with a key of their workspace.
 */
import { count, dateTime, text, usd } from './format.js'
import { Confirm } from './forms.js'
import { html, useState } from './html.js'
import { Chip, Empty, RowButton, Table, useView, Waiting } from './parts.js'

const TONES = { completed: 'good', failed: 'bad', expired: 'bad', cancelled: 'warn', cancelling: 'warn' }
const REASONS = {
  provider_unavailable: 'the provider is unavailable',
  provider_rate_limit: 'the provider limits requests',
  key_limit: 'the API key is at its limit',
  gateway_busy: 'the gateway is busy',
}
const COLUMNS = [
  'Batch',
  'Status',
  'Progress',
  { name: 'Failed', number: true },
  'Model',
  'Runs at',
  { name: 'Cost', number: true },
  'Began',
  'Error',
  '',
]
/** States that can be cancelled; batches in other states have ended, or are about to. */
const CANCELLABLE_STATES = new Set(['validating', 'in_progress'])
/** Often, so that progress is visible. */
const POLL_INTERVAL_MS = 2_000

export function Batches({ calls }) {
  const { document, error } = useView(calls, 'batches', {}, POLL_INTERVAL_MS)
  const [batchToCancel, setBatchToCancel] = useState(null)
  const cancel = async () => {
    await calls.api('POST', `workspaces/${batchToCancel.workspace_id}/batches/${batchToCancel.id}/cancel`, {
      body: {},
    })
    setBatchToCancel(null)
  }
  if (document === null) return html`<${Waiting} error=${error} />`
  const { data, has_more: hasMore } = document
  return html`
    <section aria-labelledby="batches-heading">
      <h2 id="batches-heading">Batches</h2>
      ${
        data.length === 0
          ? html`<${Empty}>No batches yet. POST /v1/batches starts one.<//>`
          : html`<${Table} label="Batches, newest first" columns=${COLUMNS}>
              ${data.map(batch => html`<${Row} key=${batch.id} batch=${batch} onCancel=${setBatchToCancel} />`)}
            <//>`
      }
      ${hasMore && html`<p class="dim">The last ${data.length} of them.</p>`}
      ${
        batchToCancel !== null &&
        html`
          <${Confirm} title="Stop the batch?" send="Stop the batch" onSend=${cancel} onClose=${() => setBatchToCancel(null)}>
            ${batchToCancel.id} cannot be resumed: running requests are aborted, waiting ones are never sent, and
            ${' '}${count(batchToCancel.request_counts.completed + batchToCancel.request_counts.failed)} finished results stay.
          <//>
        `
      }
    </section>
  `
}

function Row({ batch, onCancel }) {
  const { total, completed, failed } = batch.request_counts
  const ended = completed + failed
  return html`
    <tr>
      <th scope="row" class="mono">${batch.id}</th>
      <td><${Chip} tone=${TONES[batch.status] ?? 'plain'}>${batch.status}<//></td>
      <td class="progress">
        <progress max=${Math.max(total, 1)} value=${ended} aria-label=${`Progress of ${batch.id}`}></progress>
        ${' '}${count(ended)} of ${count(total)}
        ${
          batch.waiting !== null &&
          html`<div class="dim">
            waiting since ${dateTime(batch.waiting.since * 1000)}: ${REASONS[batch.waiting.reason]}
          </div>`
        }
      </td>
      <td class="number">${count(failed)}</td>
      <td>${batch.model}</td>
      <td>${batch.provider ?? 'the gateway'}</td>
      <td class="number">${usd(batch.cost)}</td>
      <td>${dateTime(batch.created_at * 1000)}</td>
      <td>${text(batch.error?.message)}</td>
      <td class="actions">
        ${
          CANCELLABLE_STATES.has(batch.status) &&
          html`<${RowButton} does="Stop" of=${batch.id} onClick=${() => onCancel(batch)} />`
        }
      </td>
    </tr>
  `
}
