/** Rollouts of routes: where each is and why, what both arms did, and the moves that an operator may make. */
import { count, duration, percent, usd } from './format.js'
import { Confirm } from './forms.js'
import { html, useState } from './html.js'
import { Chip, Empty, RowButton, Table, useApi, Waiting } from './parts.js'

const POLL_INTERVAL_MS = 5_000
const COLUMNS = [
  'Route',
  'Arm',
  'State',
  { name: 'Share', number: true },
  { name: 'Requests', number: true },
  { name: 'Errors', number: true },
  { name: 'First token', number: true },
  { name: 'Tokens/s', number: true },
  { name: 'Cost', number: true },
  { name: 'Not acceptable', number: true },
  '',
]
const TONES = { running: 'plain', holding: 'warn', promoted: 'good', rolled_back: 'bad' }
/** Moves by their path, with the states in which they are possible, and the text of their confirmation. */
const ROLLOUT_MOVES = [
  ['advance', 'Advance', ['running', 'holding'], 'The candidate gets the share of the next step now.'],
  [
    'hold',
    'Hold',
    ['running'],
    'The candidate keeps its share until you advance it. It is still rolled back if it is proven to be worse.',
  ],
  [
    'rollback',
    'Roll back',
    ['running', 'holding', 'promoted'],
    'The candidate gets no requests any more. Another rollout of this route needs another candidate.',
  ],
]

export function Rollouts({ calls }) {
  const [version, setVersion] = useState(0)
  const [chosenMove, setChosenMove] = useState(null)
  const { document, error } = useApi(calls, 'rollouts', {}, { version, everyMs: POLL_INTERVAL_MS })
  const move = async () => {
    await calls.api('POST', `rollouts/${encodeURIComponent(chosenMove.route)}/${chosenMove.path}`)
    setVersion(version + 1)
    setChosenMove(null)
  }
  return html`
    <section aria-labelledby="rollouts-heading">
      <h2 id="rollouts-heading">Rollouts</h2>
      ${document === null ? html`<${Waiting} error=${error} />` : html`<${RolloutTable} rollouts=${document.data} onMove=${setChosenMove} />`}
      ${
        chosenMove !== null &&
        html`
          <${Confirm} title=${`${chosenMove.does} ${chosenMove.route}?`} send=${chosenMove.does} onSend=${move} onClose=${() => setChosenMove(null)}>
            ${chosenMove.text}
          <//>
        `
      }
    </section>
  `
}

function RolloutTable({ rollouts, onMove }) {
  if (rollouts.length === 0)
    return html`<${Empty}>No rollouts. Add a row under "rollouts" in the configuration file to give another model a growing share of a route.<//>`
  return html`
    <${Table} label="Rollouts and their arms" columns=${COLUMNS}>
      ${rollouts.flatMap(rollout =>
        armsOf(rollout).map(
          (arm, index) =>
            html`<${Arm} key=${`${rollout.route} ${arm.name}`} rollout=${rollout} ...${arm} onMove=${onMove} first=${index === 0} />`,
        ),
      )}
    <//>
  `
}

/** The arms of a rollout with their shares of the route's requests, that of the candidate first. */
function armsOf({ arms, candidate, shadow, share }) {
  const live = [
    { name: candidate, arm: arms.candidate, share },
    { name: "the route's targets", arm: arms.base, share: 100 - share },
  ]
  if (shadow === null) return live
  const spent = `${usd(shadow.spent_usd)} of ${usd(shadow.budget_usd)}`
  return [
    ...live,
    {
      name: `shadows of ${candidate}`,
      arm: arms.shadow,
      share: shadow.share,
      note: `${count(shadow.requests)} sent, ${spent}${shadow.is_spent ? ': the budget is spent' : ''}`,
    },
    { name: 'the requests that were shadowed', arm: arms.shadowed, share: shadow.share },
  ]
}

function Arm({ rollout: { route, state, reason }, name, arm, share, note, onMove, first }) {
  return html`
    <tr>
      <th scope="row" class=${first ? '' : 'again'}>${route}</th>
      <td>${name}</td>
      <td>
        ${first && html`<${Chip} tone=${TONES[state] ?? 'plain'}>${state.replace('_', ' ')}<//>`}
        <small class="why dim">${first ? reason : note}</small>
      </td>
      <td class="number">${percent(share / 100)}</td>
      <td class="number">${count(arm.requests)}</td>
      <td class="number">${arm.requests === 0 ? '–' : percent(arm.errors / arm.requests)}</td>
      <td class="number">${duration(arm.first_token_ms)}</td>
      <td class="number">${arm.tokens_per_second === null ? '–' : Math.round(arm.tokens_per_second)}</td>
      <td class="number">${arm.cost === null ? '–' : usd(arm.cost)}</td>
      <td class="number">${arm.judged === 0 ? '–' : percent(arm.unaccepted / arm.judged)}</td>
      <td class="actions">
        ${
          first &&
          ROLLOUT_MOVES.filter(([, , states]) => states.includes(state)).map(
            ([path, does, , text]) =>
              html`<${RowButton} key=${path} does=${does} of=${`rollout of ${route}`} onClick=${() => onMove({ route, path, does, text })} />`,
          )
        }
      </td>
    </tr>
  `
}
