/** The rate limits of a key, a workspace or an end user: three fields of a form, and their text in a table. */

import { count } from '../format.js'
import { Field, numberOrNull } from '../forms.js'
import { html } from '../html.js'

const FIELDS = [
  ['requests_per_minute', 'Requests per minute', 'req/min'],
  ['tokens_per_minute', 'Tokens per minute', 'tok/min'],
  ['parallel', 'Requests at once', 'at once'],
]

/** @param without what holds if a field is empty */
export function RateFields({ record, without = 'Empty: no limit' }) {
  return FIELDS.map(
    ([name, label]) => html`
      <${Field}
        key=${name}
        label=${label}
        name=${name}
        type="number"
        min="1"
        step="1"
        value=${record?.rate_limit?.[name] ?? ''}
        hint=${without}
      />
    `,
  )
}

/** The field `rate_limit` of a body; null if no limit is set. */
export function rateLimitOf(values) {
  const limits = Object.fromEntries(FIELDS.map(([name]) => [name, numberOrNull(values[name])]))
  return Object.values(limits).every(limit => limit === null) ? null : limits
}

/** True if both set the same limits. */
export function sameRates(a, b) {
  return FIELDS.every(([name]) => (a?.[name] ?? null) === (b?.[name] ?? null))
}

/** `60 req/min, 4 at once`; empty without limits. */
export function ratesText(limits) {
  return FIELDS.flatMap(([name, , unit]) =>
    limits?.[name] == null ? [] : [`${count(limits[name])} ${unit}`],
  ).join(', ')
}
