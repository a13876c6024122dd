/** `sluice why`: explains one request: its time, its cost, and the reason for each choice. */
import type { Explanation } from '../../../features/explanations/explanation.ts'
import { explanationOfRecord } from '../../../features/explanations/of-record.ts'
import { reasonsOf } from '../../../features/explanations/reasons.ts'
import type { Store } from '../../../storage/store.ts'
import { CONFIG_OPTION, type Command, CommandError } from '../command.ts'
import { withStore } from '../keys.ts'
import { print } from '../outcome.ts'
import { plain } from './text.ts'
import { shown } from './why-view.ts'

/** Maximum other requests with the same `X-Request-Id` that are listed. */
const MAX_SAME_REQUEST_ID = 10

export const why: Command = {
  name: 'why',
  does: 'explain one request: its stages, attempts and cost, and why it was routed this way',
  argument: 'ID',
  options: {
    json: { does: 'print the explanation as one line of JSON' },
    config: CONFIG_OPTION,
  },
  async run(options, id) {
    await withStore(options, async store => {
      const [explanation, ...others] = await explanations(store, id)
      if (explanation === undefined) {
        throw new CommandError(
          `${plain(id, 128)}: there is no request with this id. Explanations appear two seconds after the answer and are kept for a day; usage records are kept for retention.usageDays`,
        )
      }
      if (options['json'] === true) {
        print(JSON.stringify({ ...explanation, reasons: reasonsOf(explanation) }))
        return
      }
      for (const line of shown(explanation)) print(line)
      if (others.length > 0)
        print(`\nEarlier requests with this X-Request-Id: ${others.map(other => other.id).join(' ')}`)
    })
    return 0
  },
}

/** The explanations by generation id or `X-Request-Id`, newest first; without any, one made from the usage record. */
async function explanations(store: Store, id: string): Promise<readonly Explanation[]> {
  const storedExplanations = await store.explanations.find(id, null, MAX_SAME_REQUEST_ID)
  if (storedExplanations.length > 0)
    return storedExplanations.map(({ document }) => JSON.parse(document) as Explanation)
  const record = await store.ledger.findOfAny(id)
  return record === null ? [] : [explanationOfRecord(record)]
}
