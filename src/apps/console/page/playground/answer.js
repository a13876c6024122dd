/** One answer in the playground, as formatted text, as plain text, or as the JSON of its response. */
import { count, duration, usd } from '../format.js'
import { html } from '../html.js'
import { Chip } from '../parts.js'
import { Markdown } from './markdown.js'

const TONES = { running: 'plain', done: 'good', failed: 'bad', stopped: 'warn' }

export function Answer({ at, model, answer, shown }) {
  const { state, text, reasoning, response } = answer
  const heading = `answer-heading-${at}`
  return html`
    <article class="lane" aria-labelledby=${heading}>
      <h3 id=${heading}>${at === 0 ? 'Answer' : `Answer ${at + 1}`}${model === '' ? '' : ` of ${model}`}</h3>
      ${state !== 'idle' && html`<p role="status"><${StatusLine} answer=${answer} /></p>`}
      ${
        reasoning !== '' &&
        html`<details><summary>Reasoning</summary><p class="reasoning">${reasoning}</p></details>`
      }
      <output class=${`reply ${shown}`} aria-labelledby=${heading} aria-busy=${state === 'running'}>
        ${
          shown === 'json'
            ? response === null
              ? ''
              : JSON.stringify(response, null, 2)
            : shown === 'text'
              ? text
              : html`<${Markdown} text=${text} />`
        }
      </output>
    </article>
  `
}

function StatusLine({ answer: { state, told, id, firstMs, totalMs, usage } }) {
  const parts = [
    told,
    firstMs === null ? '' : `first token ${duration(firstMs)}`,
    totalMs === null ? '' : `total ${duration(totalMs)}`,
    usage === null ? '' : `${count(usage.input_tokens)} → ${count(usage.output_tokens)} tokens`,
    usage?.cost === undefined ? '' : usd(usage.cost),
    id ?? '',
  ]
  return html`<${Chip} tone=${TONES[state]}>${state}<//> ${parts.filter(part => part !== '').join(' · ')}`
}
