/** The contract of explanations. */
import type { Test } from 'tap'
import type { NewExplanation } from '../../../src/storage/ledger.ts'
import type { Opened } from '../contract.ts'

function some(id: string, fields: Partial<NewExplanation> = {}): NewExplanation {
  return {
    id,
    organizationId: 'org_1',
    requestId: null,
    createdAt: '2026-01-01T00:00:00.000Z',
    isPlain: false,
    document: JSON.stringify({ id }),
    ...fields,
  }
}

const day = (number: number): string => `2026-01-0${number}T00:00:00.000Z`

export async function explanationContract(t: Test, opened: Opened): Promise<void> {
  await t.test('an explanation is found by either id, in its organization alone', async t => {
    const { explanations } = await opened(t)
    await explanations.add([
      some('gen-1', { requestId: 'r' }),
      some('gen-2', { requestId: 'r', createdAt: day(2) }),
      some('gen-3', { requestId: 'r', organizationId: 'org_2' }),
    ])
    await explanations.add([])
    await explanations.add([some('gen-1', { document: '{}' })])
    const ids = async (id: string, organization: string | null, limit = 10) =>
      (await explanations.find(id, organization, limit)).map(found => found.id)
    t.same(await explanations.find('gen-1', 'org_1', 1), [
      { id: 'gen-1', organizationId: 'org_1', document: '{"id":"gen-1"}' },
    ])
    t.same(await ids('r', 'org_1'), ['gen-2', 'gen-1'], 'newest first')
    t.same(await ids('r', 'org_1', 1), ['gen-2'])
    t.same((await ids('r', null)).toSorted(), ['gen-1', 'gen-2', 'gen-3'], 'for operators')
    t.same(await ids('gen-3', 'org_1'), [])
    t.same(await ids('gen-9', null), [])
  })

  await t.test('many are added at once, and old ones are removed', async t => {
    const { explanations } = await opened(t)
    const many = Array.from({ length: 250 }, (_, n) => some(`gen-${n}`, { createdAt: day(1 + (n % 3)) }))
    await explanations.add(many)
    t.equal(await explanations.prune(day(2), 50), 50)
    t.equal(await explanations.prune(day(2), 1000), 34)
    t.equal(await explanations.prune(day(2), 1000), 0)
  })

  await t.test('the latest of each organization and kind stay', async t => {
    const { explanations } = await opened(t)
    await explanations.add(
      [1, 2, 3].flatMap(n => [
        some(`a-${n}`, { createdAt: day(n) }),
        some(`b-${n}`, { createdAt: day(n), organizationId: 'org_2' }),
        some(`p-${n}`, { createdAt: day(n), isPlain: true }),
        some(`n-${n}`, { organizationId: '' }),
      ]),
    )
    t.equal(await explanations.pruneBeyond(3, 100), 0)
    t.equal(await explanations.pruneBeyond(2, 1), 1)
    t.equal(await explanations.pruneBeyond(2, 100), 3)
    const left = async (id: string) => (await explanations.find(id, null, 1)).length
    for (const id of ['a', 'b', 'p', 'n'].flatMap(kind => [`${kind}-2`, `${kind}-3`]))
      t.equal(await left(id), 1, id)
    for (const id of ['a-1', 'b-1', 'p-1', 'n-1']) t.equal(await left(id), 0, id)
  })

  await t.test('an operator finds the usage record of any organization', async t => {
    const { ledger } = await opened(t)
    t.equal(await ledger.findOfAny('gen-none'), null)
  })
}
