/** Tests a text against a guardrail, and shows the findings. */
import { Field, Select } from '../forms.js'
import { html, useState } from '../html.js'
import { guardrailName } from '../names.js'
import { Chip } from '../parts.js'

const TONES = { flag: 'plain', mask: 'warn', redact: 'warn', block: 'bad' }
/** The words for the effect of an action on a text. */
const EFFECTS = {
  flag: ' It would be sent unchanged.',
  mask: ' The text below would be sent; the originals come back in the answer.',
  redact: ' The text below would be sent.',
  block: ' The request would be refused.',
}
const SIDES = [
  ['input', 'a request'],
  ['output', 'a reply'],
]
const MAX_TEXT_CHARS = 20_000

export function TextCheck({ calls, guardrails, names }) {
  const [id, setId] = useState(guardrails[0].id)
  const [text, setText] = useState('')
  const [side, setSide] = useState('input')
  const [result, setResult] = useState(null)
  const [fault, setFault] = useState('')
  const check = async event => {
    event.preventDefault()
    setFault('')
    try {
      const { data } = await calls.api('POST', `guardrails/${id}/check`, { body: { text, side } })
      setResult({ ...data, text })
    } catch (error) {
      setResult(null)
      setFault(error.message)
    }
  }
  return html`
    <section aria-labelledby="check-heading">
      <h2 id="check-heading">Try a text</h2>
      <form class="controls" onSubmit=${check}>
        <${Field} label="Guardrail">
          <${Select}
            value=${id}
            options=${guardrails.map(guardrail => [guardrail.id, guardrailName(names, guardrail)])}
            onChange=${event => setId(event.currentTarget.value)}
          />
        <//>
        <${Field} label="As">
          <${Select} value=${side} options=${SIDES} onChange=${event => setSide(event.currentTarget.value)} />
        <//>
        <${Field} label="Text">
          <textarea
            required
            rows="4"
            maxlength=${MAX_TEXT_CHARS}
            value=${text}
            onInput=${event => setText(event.currentTarget.value)}
          ></textarea>
        <//>
        <button type="submit" class="main">Check</button>
      </form>
      ${fault !== '' && html`<p class="fault" role="alert">${fault}</p>`}
      ${result !== null && html`<${Findings} found=${result} />`}
    </section>
  `
}

function Findings({ found: { text, action, redacted, findings } }) {
  if (action === null) return html`<p role="status">Nothing was found: the text would not be changed.</p>`
  return html`
    <p role="status">
      <${Chip} tone=${TONES[action]}>${action}<//>
      ${EFFECTS[action]}
    </p>
    <p class="reply text" aria-label="The text with what was found">
      ${markedParts(text, findings).map(({ part, finding }, index) =>
        finding === null
          ? part
          : html`<mark key=${index} class=${TONES[finding.action]} title=${`${finding.detector}: ${finding.action}`}>${part}</mark>`,
      )}
    </p>
    ${(action === 'redact' || action === 'mask') && html`<p class="reply text" aria-label="The text that would be sent">${redacted}</p>`}
    <ul>
      ${findings.slice(0, 50).map(
        ({ detector, pattern, action: ownAction, start, end }, index) => html`
          <li key=${index}>${detector === 'custom' ? pattern : detector}: ${ownAction}, characters ${start + 1} to ${end}</li>
        `,
      )}
    </ul>
  `
}

/** The text in parts; if findings overlap, the first one is marked. */
function markedParts(text, findings) {
  const parts = []
  let from = 0
  for (const finding of findings) {
    if (finding.start < from) continue
    parts.push({ part: text.slice(from, finding.start), finding: null })
    parts.push({ part: text.slice(finding.start, finding.end), finding })
    from = finding.end
  }
  parts.push({ part: text.slice(from), finding: null })
  return parts
}
