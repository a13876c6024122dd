import t from 'tap'
import { SingleFlight } from '../../../src/storage/invalidation/single-flight.ts'

t.test('concurrent loads of one name share one promise', async t => {
  const flights = new SingleFlight<string>()
  let loads = 0
  const gate = Promise.withResolvers<string>()
  const load = () => {
    loads++
    return gate.promise
  }
  const [one, two] = [flights.run('a', load), flights.run('a', load)]
  t.equal(one, two)
  t.equal(flights.find('a'), one)
  t.equal(flights.find('b'), undefined)
  t.equal(flights.active, 1)
  gate.resolve('x')
  t.equal(await one, 'x')
  t.same([loads, flights.active, flights.find('a')], [1, 0, undefined])
})

t.test('a failed load leaves nothing behind', async t => {
  const flights = new SingleFlight<string>()
  await t.rejects(
    flights.run('a', async () => {
      throw new Error('away')
    }),
    /away/,
  )
  const broken = (): Promise<string> => {
    throw new Error('broken')
  }
  t.throws(() => flights.run('a', broken), /broken/)
  t.equal(flights.active, 0)
  t.equal(await flights.run('a', async () => 'x'), 'x')
})

t.test('a dropped load is not current, still counts, and does not end the next one', async t => {
  const drops: Readonly<Record<string, (flights: SingleFlight<string>) => void>> = {
    name: flights => flights.drop('a'),
    owner: flights => flights.dropOwner('me'),
    all: flights => flights.dropAll(),
  }
  for (const [how, drop] of Object.entries(drops)) {
    const flights = new SingleFlight<string>()
    const [first, second] = [Promise.withResolvers<string>(), Promise.withResolvers<string>()]
    const current: boolean[] = []
    const load = (gate: Promise<string>) => async (isCurrent: () => boolean) => {
      const value = await gate
      current.push(isCurrent())
      return value
    }
    const early = flights.run('a', load(first.promise), 'me')
    flights.dropOwner('you')
    t.equal(flights.find('a'), early, 'loads of another owner go on')
    drop(flights)
    t.equal(flights.find('a'), undefined, how)
    const late = flights.run('a', load(second.promise), 'me')
    t.equal(flights.active, 2)
    first.resolve('old')
    t.equal(await early, 'old')
    t.equal(flights.find('a'), late)
    second.resolve('new')
    t.equal(await late, 'new')
    t.same(current, [false, true], how)
    t.equal(flights.active, 0)
  }
})
