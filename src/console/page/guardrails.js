/** The list of guardrails, and their findings by detector since the process started. */
import { count, text } from './format.js'
import { html } from './html.js'
import { Chip, Empty, Table, useView, Waiting } from './parts.js'

/** Actions in the order of the columns, and how they are called. */
const ACTIONS = [
  ['blocked', 'Blocked'],
  ['redacted', 'Redacted'],
  ['flagged', 'Flagged'],
  ['refused_unchecked', 'Refused unchecked'],
  ['passed_unchecked', 'Passed unchecked'],
]

export function Guardrails({ calls }) {
  const { document, error } = useView(calls, 'guardrails')
  if (document === null) return html`<${Waiting} error=${error} />`
  return html`
    <section aria-labelledby="hits-heading">
      <h2 id="hits-heading">Hits since the start</h2>
      <p class="dim">All requests of this process, of every organization, as in /metrics.</p>
      <${Hits} decisions=${document.decisions} />
    </section>
    <section aria-labelledby="guardrails-heading">
      <h2 id="guardrails-heading">Guardrails</h2>
      <${Rules} guardrails=${document.data} />
      ${
        document.total_count > document.data.length &&
        html`<p class="dim">The first ${document.data.length} of ${document.total_count}.</p>`
      }
    </section>
  `
}

function Hits({ decisions }) {
  if (decisions.length === 0) {
    return html`<${Empty}>No guardrail has found anything yet. Detectors are set by PATCH /v1/guardrails/ID.<//>`
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

function Rules({ guardrails }) {
  if (guardrails.length === 0) return html`<${Empty}>No guardrails yet. POST /v1/guardrails makes one.<//>`
  return html`
    <${Table} label="Guardrails" columns=${['Name', 'Workspace', 'Detectors', { name: 'Patterns', number: true }, 'Replies', 'If it fails']}>
      ${guardrails.map(
        rule => html`
          <tr key=${rule.id}>
            <th scope="row">${rule.name}${rule.is_workspace_default && html` <${Chip}>default<//>`}</th>
            <td>${text(rule.workspace_id ?? 'all')}</td>
            <td>
              ${
                rule.detectors.length === 0
                  ? 'none'
                  : rule.detectors.map(
                      ({ slug, action }) =>
                        html`<${Chip} key=${slug} title=${action}>${slug}: ${action}<//> `,
                    )
              }
            </td>
            <td class="number">${rule.patterns}</td>
            <td>${rule.checks_replies ? 'checked' : 'not checked'}</td>
            <td>${text(rule.fail_mode)}</td>
          </tr>
        `,
      )}
    <//>
  `
}
