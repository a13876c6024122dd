/** The response cache of a key or a workspace: one field of a form. */

import { Field, Select } from '../forms.js'
import { html } from '../html.js'

const CHOICES = [
  ['off', 'off'],
  ['key', 'equal requests of one key get one answer'],
  ['workspace', 'equal requests of the workspace get one answer'],
]

/** @param without what holds if nothing is chosen */
export function CacheField({ record, without }) {
  const options = [['', without], ...CHOICES]
  return html`
    <${Field} label="Response cache">
      <${Select} name="cache" value=${choiceOf(record?.cache)} options=${options} />
    <//>
  `
}

/** The field `cache` of a body. The seconds of the record stay. */
export function cacheOf(choice, record) {
  if (choice === '') return null
  const enabled = choice !== 'off'
  return { ...record?.cache, enabled, ...(enabled ? { scope: choice } : {}) }
}

export function sameCache(cache, value) {
  return choiceOf(cache) === choiceOf(value)
}

function choiceOf(cache) {
  if (cache == null) return ''
  return cache.enabled ? (cache.scope ?? 'key') : 'off'
}
