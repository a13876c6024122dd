/** The policy of a key or a workspace for agents that run in a circle: one field of a form. */

import { Field, Select } from '../forms.js'
import { html } from '../html.js'

const ACTIONS = [
  ['off', 'off: not checked'],
  ['tell', 'reported: a header and an alert'],
  ['stop', 'stopped: refused with 429'],
]

/** @param without what holds if no policy is chosen */
export function LoopField({ record, without }) {
  const options = [['', without], ...ACTIONS]
  return html`
    <${Field} label="Agents that run in a circle">
      <${Select} name="loops" value=${record?.loops?.action ?? ''} options=${options} />
    <//>
  `
}

/** The field `loops` of a body. The numbers of the record stay. */
export function loopsOf(action, record) {
  if (action === '') return null
  return record?.loops == null ? action : { ...record.loops, action }
}

export function sameLoops(loops, value) {
  return (loops?.action ?? null) === (value?.action ?? value)
}
