/** The contract of lists of models. */
import type { Test } from 'tap'
import type { CatalogueSource } from '../../../src/storage/catalogue.ts'
import type { Opened } from '../contract.ts'
import { ODD_TEXT } from '../records.ts'

const list = (source: string, more: Partial<CatalogueSource> = {}): CatalogueSource => ({
  source,
  version: 'v1',
  models: 2,
  facts: JSON.stringify([{ id: 'a/b', name: ODD_TEXT }]),
  updatedAt: '2026-03-01T00:00:00.000Z',
  ...more,
})

export async function catalogueContract(t: Test, opened: Opened): Promise<void> {
  await t.test('the last configuration replaces the one before', async t => {
    const { configurations } = await opened(t)
    t.equal(await configurations.find(), null)
    for (const document of ['{"first":1}', JSON.stringify({ text: ODD_TEXT })]) {
      await configurations.put(document, '2026-03-01T00:00:00.000Z')
      t.equal(await configurations.find(), document)
    }
  })

  await t.test('a list of models comes back as it was put, and by its source alone', async t => {
    const { catalogue } = await opened(t)
    t.same(await catalogue.list(), [])
    t.equal(await catalogue.find('import'), null)
    // Larger than a page of any engine.
    const large = list('provider:acme', { facts: JSON.stringify('x'.repeat(3_000_000)), models: 5_000 })
    await catalogue.put(large)
    await catalogue.put(list('import'))
    t.same(await catalogue.find('provider:acme'), large)
    t.same(await catalogue.find('import'), list('import'))
    t.same(
      (await catalogue.list()).map(({ source, version, models }) => [source, version, models]),
      [
        ['import', 'v1', 2],
        ['provider:acme', 'v1', 5_000],
      ],
    )
  })

  await t.test('a later list stands in the place of the earlier one, and can be removed', async t => {
    const { catalogue } = await opened(t)
    await catalogue.put(list('import'))
    const later = list('import', {
      version: 'v2',
      facts: '[]',
      models: 0,
      updatedAt: '2026-03-02T00:00:00.000Z',
    })
    await Promise.all([catalogue.put(later), catalogue.put(later)])
    t.same(await catalogue.find('import'), later)
    t.equal((await catalogue.list()).length, 1)
    t.equal(await catalogue.remove('import'), true)
    t.equal(await catalogue.remove('import'), false)
    t.same(await catalogue.list(), [])
  })
}
