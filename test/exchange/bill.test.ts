import t from 'tap'
import { Bill, type Charge } from '../../src/exchange/bill.ts'

/** Each figure another multiple of `n`, so that none is taken for another. */
function chargeOf(n: number, exact = true): Charge {
  return {
    usage: {
      inputTokens: n,
      cachedTokens: 2 * n,
      cacheWriteTokens: 3 * n,
      outputTokens: 5 * n,
      reasoningTokens: 7 * n,
      webSearchRequests: 11 * n,
    },
    inputCost: 13 * n,
    outputCost: 17 * n,
    cost: 31 * n,
    isExact: exact,
    isUnpriced: false,
  }
}

t.test('a new bill is empty', async t => {
  const bill = new Bill()
  t.equal(bill.turns, 0)
  t.same([bill.closed, bill.total, bill.cost], [null, null, null])
  t.equal(bill.accounting, 'none')
  t.same(bill.tools, { requested: 0, executed: 0, cost: 0 })
})

t.test('the charge of the running turn counts so far, and may be replaced', async t => {
  const bill = new Bill()
  bill.charge(chargeOf(1))
  t.same(bill.total, chargeOf(1))
  t.equal(bill.cost, 31)
  t.equal(bill.closed, null)
  t.equal(bill.turns, 0)
  bill.charge(chargeOf(2))
  t.same(bill.total, chargeOf(2))
  bill.charge(null)
  t.same([bill.total, bill.cost, bill.accounting], [null, null, 'none'])
})

t.test('a closed turn counts whatever follows, with every figure', async t => {
  const bill = new Bill()
  bill.charge(chargeOf(1))
  bill.closeTurn()
  t.equal(bill.turns, 1)
  t.same([bill.closed, bill.total], [chargeOf(1), chargeOf(1)])
  bill.charge(chargeOf(2))
  t.same(bill.closed, chargeOf(1))
  t.same(bill.total, chargeOf(3))
  bill.charge(null)
  t.same(bill.total, chargeOf(1), 'a turn that failed costs nothing')
  bill.charge(chargeOf(4))
  bill.closeTurn()
  t.equal(bill.turns, 2)
  t.same([bill.closed, bill.total], [chargeOf(5), chargeOf(5)])
  t.equal(bill.cost, 5 * 31)
})

t.test('of two attempts whose caller left the dearer charge counts', async t => {
  const bill = new Bill()
  bill.charge(chargeOf(1))
  bill.closeTurn()
  t.equal(bill.chargeDearer(chargeOf(3)), 3 * 31)
  t.equal(bill.chargeDearer(chargeOf(2)), 2 * 31, 'each attempt has its own cost')
  t.same(bill.total, chargeOf(4))
  bill.chargeDearer(chargeOf(5))
  t.same(bill.total, chargeOf(6))
})

t.test('a turn without a charge is a turn', async t => {
  const bill = new Bill()
  bill.closeTurn()
  t.equal(bill.turns, 1)
  t.equal(bill.closed, null)
  bill.charge(chargeOf(1))
  bill.closeTurn()
  bill.closeTurn()
  t.equal(bill.turns, 3)
  t.same(bill.closed, chargeOf(1))
})

t.test('figures are exact only where those of every turn are', async t => {
  const accountingOf = (...turns: readonly boolean[]) => {
    const bill = new Bill()
    for (const exact of turns) {
      bill.charge(chargeOf(1, exact))
      bill.closeTurn()
    }
    return bill.accounting
  }
  t.equal(accountingOf(true), 'exact')
  t.equal(accountingOf(true, true), 'exact')
  t.equal(accountingOf(false), 'estimated')
  t.equal(accountingOf(false, true), 'estimated')
  t.equal(accountingOf(true, false, true), 'estimated')
})

t.test('calls of tools are counted, and only those that ran cost their fee', async t => {
  const bill = new Bill()
  bill.addToolCall(true)
  t.equal(bill.cost, null, 'a tool without a fee charges nothing')
  bill.addToolCall(false, 100)
  t.same(bill.tools, { requested: 2, executed: 1, cost: 0 })
  bill.addToolCall(true, 5)
  bill.addToolCall(true, 7)
  t.same(bill.tools, { requested: 4, executed: 3, cost: 12 })
  t.equal(bill.cost, 12, 'fees count without any tokens')
  bill.charge(chargeOf(1))
  t.equal(bill.cost, 31 + 12)
  t.equal(bill.total?.cost, 31, 'fees are no part of what tokens cost')
  bill.closeTurn()
  t.same(bill.tools, { requested: 4, executed: 3, cost: 12 }, 'turns do not reset them')
})

t.test('a factor of prices holds for model calls and not for tools', async t => {
  const bill = new Bill(500_000)
  t.same([bill.cost, bill.closedCost], [null, 0])
  bill.charge(chargeOf(1))
  t.equal(bill.cost, 15)
  t.equal(bill.closedCost, 0, 'the turn runs')
  bill.closeTurn()
  bill.charge(chargeOf(2))
  t.equal(bill.cost, 46, 'of the sum, so that roundings do not add up')
  t.equal(bill.closedCost, 15)
  bill.addToolCall(true, 12)
  t.same([bill.cost, bill.closedCost], [58, 27])
  t.same(bill.total, chargeOf(3), 'charges keep the prices of the endpoints')
})
