"""What the tests stand on: throwaway databases, processes under test, custodians that misbehave, and the invariants."""
