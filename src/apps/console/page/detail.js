/**
 * Details of one request: its stages as a bar, its attempts, the reasons for its routing, and its usage record. Never
 * its prompt or answer.
 */
import { count, dateTime, duration, percent, text, usd } from './format.js'
import { html, useEffect, useLayoutEffect, useRef, useState } from './html.js'
import { keyName, useNames, workspaceName } from './names.js'
import { Attempts, Status } from './outcome.js'
import { Chip } from './parts.js'

/** Names and descriptions of stages, in order. */
const STAGES = {
  parse: 'head and body are read',
  auth: 'the API key is checked',
  upload: 'the body arrives',
  queue: 'the request waits, because its key has too many open requests',
  guard: 'guardrails check the request',
  route: 'endpoints are chosen',
  admit: 'limits reserve the possible cost',
  failover: 'attempts that failed',
  encode: 'the request to the provider is written',
  upstream_first_byte: 'until the provider answers',
  first_token: 'until its first content',
  stream: 'the answer arrives',
  judge: 'plugins check the answer',
  tools: 'tools of the gateway run',
  flush: 'the end is written',
  waiting: 'until the first content',
  answer: 'from the first content to the end',
}

/** Explanations are stored two seconds after the end. */
const EXPLANATION_DELAY_MS = 2_500
const MAX_ATTEMPTS = 3

export function Detail({ calls, row, onClose }) {
  const [record, setRecord] = useState(null)
  const [missing, setMissing] = useState(false)
  const [attempt, setAttempt] = useState(0)
  const heading = useRef(null)
  const names = useNames(calls)

  // A record that was missing may exist when the cost is known.
  useEffect(() => {
    const controller = new AbortController()
    calls.view('requests', { id: row.id }, controller.signal).then(
      ({ data }) => setRecord(data),
      () => setMissing(!controller.signal.aborted),
    )
    return () => controller.abort()
  }, [row.id, row.cost === null, attempt])

  const why = record?.explanation ?? null
  const isWhole = why?.source === 'whole'
  useEffect(() => {
    if (isWhole || attempt === MAX_ATTEMPTS) return undefined
    const timer = setTimeout(() => setAttempt(attempt + 1), EXPLANATION_DELAY_MS)
    return () => clearTimeout(timer)
  }, [row.id, isWhole, attempt])

  // Registered together with the details, so that an immediate Escape works.
  useLayoutEffect(() => {
    heading.current?.focus()
    const onKey = event => {
      if (event.key === 'Escape' && !document.querySelector('dialog[open]')) onClose()
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [])

  return html`
    <section class="detail" aria-labelledby="detail-heading">
      <header>
        <h2 id="detail-heading" ref=${heading} tabindex="-1">Request</h2>
        <button type="button" aria-label="Close details" title="Esc" onClick=${onClose}>Close</button>
      </header>
      <p class="mono">${row.id}</p>
      <p><${Status} row=${row} /> <${Attempts} row=${row} /></p>
      ${row.error !== null && html`<p class="fault">${row.error}${row.cause === null ? '' : `: ${row.cause}`}</p>`}
      <h3>Stages</h3>
      <${Stages} row=${row.stages === null && isWhole ? { ...row, stages: why.stages_ms } : row} />
      <h3>Attempts</h3>
      ${row.attempts.length === 0 ? html`<p class="dim">No provider was called.</p>` : html`<${AttemptList} row=${row} />`}
      ${why !== null && html`<h3>Why</h3><ul class="why">${why.reasons.map(reason => html`<li key=${reason}>${reason}</li>`)}</ul>`}
      <h3>Metadata</h3>
      <dl class="facts">
        ${factsOf(row, record, names).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${text(value)}</dd>`)}
      </dl>
      ${missing && record === null && html`<p class="dim">There is no usage record: the request was refused early.</p>`}
    </section>
  `
}

function Stages({ row }) {
  const stages = stagesOf(row).filter(([, ms]) => ms > 0)
  const sum = stages.reduce((total, [, ms]) => total + ms, 0)
  return html`
    <div class="stages" role="img" aria-label=${stages.map(([name, ms]) => `${name} ${duration(ms)}`).join(', ')}>
      ${stages.map(([name, ms]) => {
        return html`<i
          key=${name}
          class=${`stage ${name}`}
          title=${`${name} ${duration(ms)}`}
          style=${{ flexGrow: ms / sum }}
        ></i>`
      })}
    </div>
    <table class="plain" aria-label="Stages">
      <tbody>
        ${stages.map(([name, ms]) => {
          return html`<tr key=${name}>
            <th scope="row"><i class=${`stage ${name}`}></i>${name}</th>
            <td class="number">${duration(ms)}</td>
            <td class="number">${percent(ms / sum)}</td>
            <td class="dim">${STAGES[name]}</td>
          </tr>`
        })}
      </tbody>
    </table>
    ${
      row.stages === null &&
      html`<p class="dim">Its stages were not kept: only the latest plain requests have them.</p>`
    }
  `
}

/** Stages by name and milliseconds, in order. */
function stagesOf({ stages, firstTokenMs, durationMs }) {
  if (stages !== null)
    return Object.keys(STAGES).flatMap(name => (name in stages ? [[name, stages[name]]] : []))
  if (firstTokenMs === null) return [['waiting', durationMs]]
  return [
    ['waiting', firstTokenMs],
    ['answer', durationMs - firstTokenMs],
  ]
}

function AttemptList({ row }) {
  return html`<ol class="tries">
    ${row.attempts.map(({ provider, status, error, cause }, index) => {
      const outcome = [status, error, cause].filter(part => part !== null).join(' · ')
      return html`<li key=${index}>
        ${provider}${' '}
        <${Chip} tone=${error === null ? 'good' : 'bad'}>${error === null ? 'answered' : outcome}<//>
      </li>`
    })}
  </ol>`
}

/** Names and values; more once the usage record exists. */
function factsOf(row, record, names) {
  const facts = [
    ['received', dateTime(row.at)],
    ['model', row.model],
    ['first token', duration(row.firstTokenMs)],
    ['total', duration(row.durationMs)],
    ['cost', usd(row.cost)],
    ['workspace', row.workspace === null ? null : workspaceName(names, row.workspace)],
  ]
  if (record === null) return facts
  const hash = record.explanation?.key_hash ?? null
  return [
    ...facts,
    ['API key', hash === null || !names.isKnown ? null : keyName(names, hash)],
    ['input tokens', count(record.tokens_prompt)],
    ['of them cached', count(record.native_tokens_cached)],
    ['output tokens', count(record.tokens_completion)],
    ['of them reasoning', count(record.native_tokens_reasoning)],
    ['tokens are', record.accounting],
    ['finish', record.finish_reason],
    ['finish of the provider', record.native_finish_reason],
    ['id at the provider', record.upstream_id],
    ['streamed', record.streamed ? 'yes' : 'no'],
    ['own credential', record.is_byok ? 'yes' : 'no'],
    ['router', record.router],
    ['service tier', record.service_tier],
    ['data region', record.data_region],
    ['end user', record.external_user],
    ['session', record.session_id],
  ].filter(([, value]) => value !== null)
}
