/** Health in one line: current problems, each with a link to the view that shows it. */
import { percent, usd } from '../format.js'
import { html } from '../html.js'

/** A limit is listed from this used part on. */
const NEAR_LIMIT_SHARE = 0.9
const MAX_NAMED_KEYS = 3

/** @param keys API keys with their limits @param live the live list @param error of the last request, or null */
export function Health({ problems, keys, live, error }) {
  const allProblems = [...pageProblems(live, error), ...problems, ...limitProblems(keys)]
  if (allProblems.length === 0)
    return html`<p class="health good" role="status"><b>No problems.</b> Nothing needs your attention now.</p>`
  const isBad = allProblems.some(({ is_serious: isSerious }) => isSerious)
  return html`
    <div class=${`health ${isBad ? 'bad' : 'warn'}`} role="status">
      <ul aria-label="Current problems">
        ${allProblems.map(
          ({ text, view }) => html`
            <li key=${text}>${text}${' '}${view !== 'home' && html`<a href=${`#/${view}`}>Show</a>`}</li>
          `,
        )}
      </ul>
    </div>
  `
}

function pageProblems(live, error) {
  if (error !== null || live.state === 'lost') {
    return [
      {
        text: 'The gateway does not answer this page. The page keeps trying.',
        view: 'home',
        is_serious: true,
      },
    ]
  }
  return []
}

function limitProblems(keys) {
  const near = keys.filter(
    ({ limit, limit_remaining: left, disabled }) =>
      !disabled && limit !== null && left <= limit * (1 - NEAR_LIMIT_SHARE),
  )
  const keyProblems = near.slice(0, MAX_NAMED_KEYS).map(({ name, limit, limit_remaining: left }) => {
    const used = Math.min(1, 1 - left / limit)
    return {
      text:
        limit === 0
          ? `Key ${name} has a limit of $0.`
          : `Key ${name} has used ${percent(used)} of ${usd(limit)}.`,
      view: 'accounts',
      is_serious: false,
    }
  })
  if (near.length > MAX_NAMED_KEYS) {
    keyProblems.push({
      text: `${near.length - MAX_NAMED_KEYS} more keys are near their limits.`,
      view: 'accounts',
      is_serious: false,
    })
  }
  return keyProblems
}
