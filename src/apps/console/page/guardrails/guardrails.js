/** Guardrails: shows their findings since the start, and changes and tests their rules. */
import { count, text, usd } from '../format.js'
import { Confirm } from '../forms.js'
import { html, useState } from '../html.js'
import { guardrailName, useNames, workspaceName } from '../names.js'
import { Chip, Empty, RowButton, Table, useApi, useView, Waiting } from '../parts.js'
import { Budgets } from './budgets.js'
import { GuardrailForm } from './guardrail-form.js'
import { TextCheck } from './text-check.js'

/** Actions in column order, and their names. */
const ACTIONS = [
  ['blocked', 'Blocked'],
  ['redacted', 'Redacted'],
  ['masked', 'Masked'],
  ['flagged', 'Flagged'],
  ['refused_unchecked', 'Refused unchecked'],
  ['passed_unchecked', 'Passed unchecked'],
]
const COLUMNS = [
  'Name',
  'Workspace',
  'Applies to',
  'Requests',
  'Replies',
  'Budget of each key',
  'If it cannot be checked',
  '',
]

export function Guardrails({ calls }) {
  const [version, setVersion] = useState(0)
  const [open, setOpen] = useState(null)
  const names = useNames(calls)
  const hits = useView(calls, 'guardrails')
  const { document, error } = useApi(calls, 'guardrails', { limit: 100 }, { version })
  const close = () => setOpen(null)
  const onDone = () => {
    setVersion(now => now + 1)
    close()
  }
  const remove = async () => {
    await calls.api('DELETE', `guardrails/${open.record.id}`)
    onDone()
  }
  return html`
    <section aria-labelledby="hits-heading">
      <h2 id="hits-heading">Hits since the start</h2>
      <p class="dim">From all requests of this process, for every organization, as in /metrics.</p>
      ${hits.document === null ? html`<${Waiting} error=${hits.error} />` : html`<${Hits} decisions=${hits.document.decisions} />`}
    </section>
    <section aria-labelledby="guardrails-heading">
      <div class="bar">
        <h2 id="guardrails-heading">Guardrails</h2>
        <button type="button" onClick=${() => setOpen({ what: 'edit' })}>New guardrail</button>
      </div>
      ${
        document === null
          ? html`<${Waiting} error=${error} once />`
          : html`<${Rules} guardrails=${document.data} names=${names} onOpen=${setOpen} />`
      }
      ${
        document !== null &&
        document.total_count > document.data.length &&
        html`<p class="dim">The first ${document.data.length} of ${document.total_count}.</p>`
      }
    </section>
    ${document !== null && html`<${Budgets} calls=${calls} guardrails=${document.data.filter(guardrail => guardrail.limit_usd !== null)} names=${names} />`}
    ${document !== null && document.data.length > 0 && html`<${TextCheck} calls=${calls} guardrails=${document.data} names=${names} />`}
    ${
      open?.what === 'edit' &&
      html`<${GuardrailForm} calls=${calls} names=${names} record=${open.record} onDone=${onDone} onClose=${close} />`
    }
    ${
      open?.what === 'delete' &&
      html`
        <${Confirm} title=${`Delete ${open.record.name}?`} send="Delete" onSend=${remove} onClose=${close}>
          Its rules no longer apply to keys and members.
        <//>
      `
    }
  `
}

function Hits({ decisions }) {
  if (decisions.length === 0) {
    return html`<${Empty}>No guardrail has found anything yet. Use "Change" below to edit their rules.<//>`
  }
  const byDetector = new Map()
  for (const { guardrail, action, count: hits } of decisions) {
    byDetector.set(guardrail, { ...byDetector.get(guardrail), [action]: hits })
  }
  const columns = ['Detector', ...ACTIONS.map(([, name]) => ({ name, number: true }))]
  return html`
    <${Table} label="Hits by detector" columns=${columns}>
      ${[...byDetector].map(
        ([detector, hits]) => html`
          <tr key=${detector}>
            <th scope="row">${detector}</th>
            ${ACTIONS.map(([action]) => html`<td key=${action} class="number">${count(hits[action] ?? 0)}</td>`)}
          </tr>
        `,
      )}
    <//>
  `
}

function Rules({ guardrails, names, onOpen }) {
  if (guardrails.length === 0) return html`<${Empty}>No guardrails yet. "New guardrail" makes one.<//>`
  return html`
    <${Table} label="Guardrails" columns=${COLUMNS}>
      ${guardrails.map(record => {
        const name = guardrailName(names, record)
        const open = what => () => onOpen({ what, record })
        return html`
          <tr key=${record.id}>
            <th scope="row">${name}</th>
            <td>${record.workspace_id === null ? 'all' : workspaceName(names, record.workspace_id)}</td>
            <td><${AppliesTo} record=${record} /></td>
            <td><${Filters} side=${record} /></td>
            <td>${record.output === null ? 'not checked' : html`<${Filters} side=${record.output} />`}</td>
            <td>${record.limit_usd === null ? 'none' : `${usd(record.limit_usd)} ${record.reset_interval}`}</td>
            <td>${record.fail_mode === 'closed' ? 'refused' : 'passed'}</td>
            <td class="actions">
              <${RowButton} does="Change" of=${`guardrail ${name}`} onClick=${open('edit')} />
              ${
                !record.is_workspace_default &&
                html`<${RowButton} does="Delete" of=${`guardrail ${name}`} onClick=${open('delete')} />`
              }
            </td>
          </tr>
        `
      })}
    <//>
  `
}

function AppliesTo({ record: { is_workspace_default: isDefault, assigned } }) {
  if (isDefault) return 'its whole workspace'
  if (assigned === 0)
    return html`<${Chip} tone="warn" title="Assign it to keys or members, or nothing is checked by it">nobody<//>`
  return assigned === 1 ? '1 key or member' : `${count(assigned)} keys and members`
}

function Filters({ side: { content_filter_builtins: builtins, content_filters: filters } }) {
  const patterns = filters?.length ?? 0
  if ((builtins ?? []).length + patterns === 0) return 'none'
  return html`
    ${(builtins ?? []).map(({ slug, action }) => html`<${Chip} key=${slug}>${slug}: ${text(action)}<//> `)}
    ${patterns > 0 && html`<${Chip}>${patterns === 1 ? '1 pattern' : `${patterns} patterns`}<//>`}
  `
}
