/* A program that ends at once. */
int main(void) {
    return 7;
}
