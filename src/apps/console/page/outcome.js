/** Shows how a request ended, and which providers were tried. */
import { text } from './format.js'
import { html } from './html.js'
import { Chip } from './parts.js'

export function Status({ row }) {
  const tone =
    row.outcome === 'completed' ? 'good' : row.status >= 500 || row.outcome === 'failed' ? 'bad' : 'warn'
  return html`<${Chip} tone=${tone} title=${row.outcome}>
    ${row.status}${row.outcome === 'completed' ? '' : ` ${row.outcome}`}
  <//>`
}

/** The provider that answered, after those that failed. An arrow leads from a failure to the next try. */
export function Attempts({ row }) {
  if (row.attempts.length === 0) return text(row.provider)
  return row.attempts.map(({ provider, status, error, cause }, index) => {
    const outcome =
      error === null ? 'answered' : [status, error, cause].filter(part => part !== null).join(' ')
    return html`
      ${index > 0 && html`<span aria-hidden="true">${row.attempts[index - 1].error === null ? ', ' : ' → '}</span>`}
      <${Chip} key=${index} tone=${error === null ? 'plain' : 'bad'} title=${outcome}>
        ${provider}${error === null ? '' : ` ${status !== null && status >= 400 ? status : (cause ?? error)}`}
      <//>
    `
  })
}
