import t from 'tap'
import { chatUsage } from '../../../src/formats/openai-chat/usage.ts'

const COUNTS = [undefined, 0, 1, 7, 40, -1, 1.5, '7', null] as const
const usages = function* () {
  for (const input of [0, 9, '9', -1])
    for (const output of [0, 5])
      for (const more of [0, 1, 7])
        for (const cached of COUNTS)
          for (const reasoning of COUNTS)
            for (const audio of [undefined, 2, '2'])
              yield {
                prompt_tokens: input,
                completion_tokens: output,
                total_tokens: Number(input) + output + more,
                prompt_tokens_details:
                  cached === null ? null : { cached_tokens: cached, audio_tokens: audio },
                completion_tokens_details: reasoning === null ? null : { reasoning_tokens: reasoning },
              }
}

t.test("usage in OpenAI's own words is read as that of any other vendor", async t => {
  const all = [...usages()]
  t.equal(all.length, 5_832)
  t.strictSame(
    all.map(usage => chatUsage(usage)),
    // With a word of another vendor.
    all.map(usage => chatUsage({ ...usage, cost: 1 })),
  )
})
